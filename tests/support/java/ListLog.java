import io.delta.storage.LogStore;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * Print "listed PATH" for each file of a log from version 0 on.
 *
 * <p>Arguments: class of the log store, folder of the log, confs (NAME=VALUE).
 */
public final class ListLog {
    public static void main(String[] arguments) throws Exception {
        Configuration conf = new Configuration();
        for (String one : List.of(arguments).subList(2, arguments.length)) {
            conf.set(one.substring(0, one.indexOf('=')), one.substring(one.indexOf('=') + 1));
        }
        LogStore store = (LogStore) Class.forName(arguments[0]).getConstructor(Configuration.class).newInstance(conf);
        Iterator<FileStatus> files = store.listFrom(new Path(arguments[1], String.format("%020d.json", 0)), conf);
        while (files.hasNext()) {
            System.out.println("listed " + files.next().getPath());
        }
    }
}
