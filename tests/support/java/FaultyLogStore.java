import delta.cdc.FileLinkLogStore;
import java.io.File;
import java.io.IOException;
import java.nio.file.FileSystemException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Our log store for disks, whose links fail as {@link Faults} says. */
public final class FaultyLogStore extends FileLinkLogStore {
    public FaultyLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    protected void link(File file, File draft) throws IOException {
        String kind = Faults.of(new Path(file.getPath()), "io", "denied", "full", "renamed");
        try {
            Faults.before(kind, new Path(file.getPath()));
            super.link(file, draft);
            Faults.after(kind, new Path(file.getPath()));
        } catch (FileSystemException real) {
            throw real;
        } catch (IOException drawn) {
            // As java.nio has it.
            String text = drawn.getMessage();
            throw new FileSystemException(file.getPath(), draft.getPath(), reason(text));
        }
    }

    private static String reason(String text) {
        return text.contains("Permission denied") ? "Permission denied" : text.substring(text.lastIndexOf(": ") + 2);
    }
}
