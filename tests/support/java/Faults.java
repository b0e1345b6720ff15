import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Random;
import java.util.TreeMap;
import org.apache.hadoop.fs.Path;

/**
 * Which operations of a disk fail, and how: drawn from a seed, for the files below one folder.
 *
 * <p>The faults are those of {@code faulty_disk.py}: io, denied, full, renamed (here also a link that was made), stale.
 */
public final class Faults {
    private static final TreeMap<String, Integer> STRUCK = new TreeMap<>();
    private static String root = null;
    private static Random random = null;
    private static double rate = 0;
    private static String kinds = "";

    private Faults() {}

    /** Let operations fail from now on. */
    public static synchronized void arm(String folder, long seed, double share, String these) {
        root = folder;
        random = new Random(seed);
        rate = share;
        kinds = " " + these + " ";
        STRUCK.clear();
    }

    /** Let no operation fail any more; return the faults that struck, with a blank between them. */
    public static synchronized String disarm() {
        root = null;
        return String.join(" ", STRUCK.keySet());
    }

    /** Return the fault of an operation, one of those that fit; an empty text if it has none. */
    static synchronized String of(Path path, String... fitting) {
        if (root == null || !path.toUri().getPath().startsWith(root) || random.nextDouble() >= rate) {
            return "";
        }
        String kind = fitting[random.nextInt(fitting.length)];
        if (!kinds.contains(" " + kind + " ")) {
            return "";
        }
        STRUCK.merge(kind, 1, Integer::sum);
        return kind;
    }

    /** Fail as a disk fails, if there is a fault that keeps the operation from being carried out. */
    static void before(String kind, Path path) throws IOException {
        switch (kind) {
            case "io":
                throw new IOException(path + ": Input/output error");
            case "denied":
                // As java.io has it.
                throw new FileNotFoundException(path + " (Permission denied)");
            case "full":
                throw new IOException(path + ": No space left on device");
            default:
        }
    }

    /** Fail after an operation was carried out, if that is its fault. */
    static void after(String kind, Path path) throws IOException {
        if (kind.equals("renamed")) {
            throw new IOException(path + ": Input/output error");
        }
    }
}
