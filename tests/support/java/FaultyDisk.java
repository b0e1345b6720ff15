import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.Arrays;
import java.util.Comparator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** Hadoop's local file system, whose operations fail as {@link Faults} says. */
public final class FaultyDisk extends LocalFileSystem {
    public FaultyDisk() {
        super(new Raw());
    }

    /** The same for Delta's own log store, which creates a version by a rename. */
    public static final class Context extends DelegateToFileSystem {
        public Context(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(URI.create("file:///"), new Raw(), conf, "file", false);
        }
    }

    private static final class Raw extends RawLocalFileSystem {
        @Override
        public FSDataInputStream open(Path file, int buffer) throws IOException {
            Faults.before(Faults.of(file, "io", "denied"), file);
            return super.open(file, buffer);
        }

        @Override
        public FSDataOutputStream create(
                Path file, FsPermission permission, boolean overwrite, int buffer, short copies, long block,
                Progressable progress) throws IOException {
            return filling(super.create(file, overwrite, buffer, copies, block, progress), file);
        }

        @Override
        public FSDataOutputStream create(
                Path file, boolean overwrite, int buffer, short copies, long block, Progressable progress)
                throws IOException {
            return filling(super.create(file, overwrite, buffer, copies, block, progress), file);
        }

        @Override
        public boolean rename(Path source, Path target) throws IOException {
            String kind = Faults.of(target, "io", "denied", "renamed");
            Faults.before(kind, target);
            boolean isDone = super.rename(source, target);
            Faults.after(kind, target);
            return isDone;
        }

        @Override
        public boolean delete(Path path, boolean recursive) throws IOException {
            Faults.before(Faults.of(path, "io", "denied"), path);
            return super.delete(path, recursive);
        }

        @Override
        public boolean mkdirs(Path path) throws IOException {
            Faults.before(Faults.of(path, "io", "denied", "full"), path);
            return super.mkdirs(path);
        }

        @Override
        public FileStatus[] listStatus(Path path) throws IOException {
            String kind = Faults.of(path, "io", "denied", "stale");
            Faults.before(kind, path);
            FileStatus[] found = super.listStatus(path);
            if (!kind.equals("stale") || !path.getName().equals("_delta_log") || found.length == 0) {
                return found;
            }
            Arrays.sort(found, Comparator.comparing(FileStatus::getModificationTime).thenComparing(FileStatus::getPath));
            return Arrays.copyOf(found, found.length - 1);
        }

        @Override
        public FileStatus getFileStatus(Path path) throws IOException {
            String kind = Faults.of(path, "io", "io", "io");
            Faults.before(kind, path);
            return super.getFileStatus(path);
        }

        /** Without Hadoop's native library each change of permissions is a process. */
        @Override
        public void setPermission(Path path, FsPermission permission) {}

        private static FSDataOutputStream filling(FSDataOutputStream out, Path file) throws IOException {
            String kind = Faults.of(file, "io", "denied", "full");
            if (kind.equals("full")) {
                return new FSDataOutputStream(new Filling(out, file), null);
            }
            Faults.before(kind, file);
            return out;
        }
    }

    /** The disk is full after half of the first piece. */
    private static final class Filling extends FilterOutputStream {
        private final Path file;

        Filling(OutputStream out, Path file) {
            super(out);
            this.file = file;
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            out.write(bytes, from, length / 2);
            Faults.before("full", file);
        }

        @Override
        public void write(int one) throws IOException {
            Faults.before("full", file);
        }
    }
}
