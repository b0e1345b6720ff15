import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** Hadoop's local file system, whose operations {@link Stop} counts, and ends. */
public final class StoppingDisk extends LocalFileSystem {
    public StoppingDisk() {
        super(new WithoutPermissions());
    }

    @Override
    public FSDataOutputStream create(
            Path file, FsPermission permission, boolean overwrite, int buffer, short copies, long block, Progressable progress)
            throws IOException {
        Stop.step();
        return ending(super.create(file, permission, overwrite, buffer, copies, block, progress));
    }

    @Override
    public FSDataOutputStream createNonRecursive(
            Path file, FsPermission permission, boolean overwrite, int buffer, short copies, long block, Progressable progress)
            throws IOException {
        Stop.step();
        return ending(super.createNonRecursive(file, permission, overwrite, buffer, copies, block, progress));
    }

    @Override
    public boolean rename(Path source, Path target) throws IOException {
        Stop.step();
        return super.rename(source, target);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        Stop.step();
        return super.delete(path, recursive);
    }

    @Override
    public boolean mkdirs(Path path) throws IOException {
        Stop.step();
        return super.mkdirs(path);
    }

    /** A file whose end never came to the disk is a file that is cut off. */
    private static FSDataOutputStream ending(FSDataOutputStream out) throws IOException {
        return new FSDataOutputStream(new Ending(out), null);
    }

    private static final class Ending extends FilterOutputStream {
        private boolean isClosed = false;

        Ending(OutputStream out) {
            super(out);
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            out.write(bytes, from, length);
        }

        @Override
        public void close() throws IOException {
            if (!isClosed) {
                isClosed = true;
                Stop.step();
                out.close();
            }
        }
    }

    /** Without Hadoop's native library each change of permissions is a process. */
    private static final class WithoutPermissions extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) {}
    }
}
