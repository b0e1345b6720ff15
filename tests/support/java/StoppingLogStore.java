import delta.cdc.FileLinkLogStore;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
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
        Stop.step(() -> written(path, actions, overwrite, conf), () -> draft(path, actions));
    }

    private Void written(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        super.write(path, actions, overwrite, conf);
        return null;
    }

    /** Leave half of the file to which the commit was to be a link. */
    private void draft(Path path, Iterator<String> actions) throws IOException {
        File draft = new File(createTempPath(path).toUri().getPath());
        byte[] content = String.join("\n", (Iterable<String>) () -> actions).getBytes(StandardCharsets.UTF_8);
        Files.write(draft.toPath(), Arrays.copyOf(content, content.length / 2));
    }

    @Override
    protected void link(File file, File draft) throws IOException {
        Stop.step(() -> linked(file, draft), () -> {});
    }

    private Void linked(File file, File draft) throws IOException {
        super.link(file, draft);
        return null;
    }
}
