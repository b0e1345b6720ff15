import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** Hadoop's local file system, with a failpoint around the rename by which Delta's log store creates a version. */
public final class DiskWithFailpoint extends DelegateToFileSystem {
    public DiskWithFailpoint(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(URI.create("file:///"), new Renaming(), conf, "file", false);
    }

    private static final class Renaming extends RawLocalFileSystem {
        @Override
        public boolean rename(Path source, Path target) throws IOException {
            boolean[] isDone = {false};
            Failpoint.around(target.getName(), () -> isDone[0] = super.rename(source, target));
            return isDone[0];
        }
    }
}
