import java.io.File;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** Hadoop's local file system, whose operations {@link Stop} counts, and ends. */
public final class StoppingDisk extends LocalFileSystem {
    /** The half of an operation that the operating system does as a whole. */
    private static final Stop.Half NOTHING = () -> {};

    public StoppingDisk() {
        super(new WithoutPermissions());
    }

    @Override
    public FSDataOutputStream create(
            Path file, FsPermission permission, boolean overwrite, int buffer, short copies, long block, Progressable progress)
            throws IOException {
        return Stop.step(() -> ending(file, super.create(file, permission, overwrite, buffer, copies, block, progress)), NOTHING);
    }

    @Override
    public FSDataOutputStream createNonRecursive(
            Path file, FsPermission permission, boolean overwrite, int buffer, short copies, long block, Progressable progress)
            throws IOException {
        return Stop.step(
                () -> ending(file, super.createNonRecursive(file, permission, overwrite, buffer, copies, block, progress)), NOTHING);
    }

    @Override
    public boolean rename(Path source, Path target) throws IOException {
        return Stop.step(() -> super.rename(source, target), NOTHING);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        return Stop.step(() -> super.delete(path, recursive), NOTHING);
    }

    @Override
    public boolean mkdirs(Path path) throws IOException {
        return Stop.step(() -> super.mkdirs(path), NOTHING);
    }

    /** A file whose end never came to the disk is a part of a file. */
    private FSDataOutputStream ending(Path file, FSDataOutputStream out) throws IOException {
        return new FSDataOutputStream(new Ending(pathToFile(file), out), null);
    }

    private static final class Ending extends FilterOutputStream {
        private final File file;
        private boolean isClosed = false;

        Ending(File file, OutputStream out) {
            super(out);
            this.file = file;
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            out.write(bytes, from, length);
        }

        @Override
        public void close() throws IOException {
            if (!isClosed) {
                isClosed = true;
                Stop.step(this::closed, this::halved);
            }
        }

        private Void closed() throws IOException {
            out.close();
            return null;
        }

        private void halved() throws IOException {
            out.close();
            try (RandomAccessFile half = new RandomAccessFile(file, "rw")) {
                half.setLength(half.length() / 2);
            }
        }
    }

    /** Without Hadoop's native library each change of permissions is a process. */
    private static final class WithoutPermissions extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) {}
    }
}
