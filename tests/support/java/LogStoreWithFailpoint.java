import delta.cdc.FileLinkLogStore;
import java.io.File;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;

/** Our log store for disks, with a failpoint around the link by which it creates a version. */
public final class LogStoreWithFailpoint extends FileLinkLogStore {
    public LogStoreWithFailpoint(Configuration conf) {
        super(conf);
    }

    @Override
    protected void link(File file, File draft) throws IOException {
        Failpoint.around(file.getName(), () -> super.link(file, draft));
    }
}
