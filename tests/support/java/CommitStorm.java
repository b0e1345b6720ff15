import io.delta.storage.CloseableIterator;
import io.delta.storage.LogStore;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * A driver that commits to one table as Delta does: a version after the newest one it knows, and the next version if
 * another driver was first.
 *
 * <p>Prints "committed NUMBER VERSION" for each of its commits, and "unclear NUMBER VERSION ERROR" for each failure that
 * does not say whether the commit was made. Then it looks into the version, as an application has to.
 *
 * <p>Arguments: class of the log store, folder of the log, number of the driver, number of commits, longest pause before
 * a commit in ms, confs (NAME=VALUE).
 */
public final class CommitStorm {
    private static final Configuration CONF = new Configuration();
    /** A driver gives up after so many failures of one commit. */
    private static final int FAILURES = 5;

    public static void main(String[] arguments) throws Exception {
        int driver = Integer.parseInt(arguments[2]);
        int commits = Integer.parseInt(arguments[3]);
        int pause = Integer.parseInt(arguments[4]);
        for (String conf : List.of(arguments).subList(5, arguments.length)) {
            CONF.set(conf.substring(0, conf.indexOf('=')), conf.substring(conf.indexOf('=') + 1));
        }
        LogStore store = (LogStore) Class.forName(arguments[0]).getConstructor(Configuration.class).newInstance(CONF);
        Random random = new Random(driver);
        long version = 0;
        for (int number = 0; number < commits; number++) {
            String action = String.format(
                "{\"commitInfo\":{\"driver\":%d,\"number\":%d,\"txnId\":\"%s\"}}", driver, number, UUID.randomUUID());
            // The work of a transaction. Without it, all drivers ask for the same version all the time.
            Thread.sleep(random.nextInt(pause + 1));
            version = committed(store, new Path(arguments[1]), version, action, number) + 1;
        }
    }

    private static long committed(LogStore store, Path log, long first, String action, int number) throws IOException {
        int failures = 0;
        for (long version = first; ; ) {
            Path file = new Path(log, String.format("%020d.json", version));
            try {
                store.write(file, List.of(action).iterator(), false, CONF);
                System.out.println("committed " + number + " " + version);
                return version;
            } catch (FileAlreadyExistsException taken) {
                version++;
            } catch (IOException unclear) {
                System.out.println("unclear " + number + " " + version + " " + unclear.getClass().getName());
                if (action.equals(read(store, file))) {
                    System.out.println("committed " + number + " " + version);
                    return version;
                }
                failures++;
                if (failures == FAILURES) {
                    throw unclear;
                }
            }
        }
    }

    /** Return the first line of a file; null if there is none, or the store does not answer. */
    private static String read(LogStore store, Path file) {
        try (CloseableIterator<String> lines = store.read(file, CONF)) {
            return lines.next();
        } catch (IOException failure) {
            return null;
        }
    }
}
