import delta.cdc.FileLinkLogStore;
import java.io.File;
import java.io.IOException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Our log store for disks, whose operations {@link Stop} counts, and ends. */
public final class StoppingLogStore extends FileLinkLogStore {
    public StoppingLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        Stop.step();
        super.write(path, actions, overwrite, conf);
    }

    @Override
    protected void link(File file, File draft) throws IOException {
        Stop.step();
        super.link(file, draft);
    }
}
