package delta.cdc;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;

/**
 * Delta's log store for S3, with commits that any number of drivers may make: each commit is a PUT that S3 refuses if
 * the version exists (If-None-Match).
 *
 * <p>Everything but a commit is Delta's own. Needs S3A of Hadoop 3.4.2 or later, and a store that honours the condition.
 * Before the first commit in a bucket, the log store tests the store.
 */
public final class S3ConditionalLogStore extends S3SingleDriverLogStore {
    /** Hadoop conf: the user guarantees a single driver, so a store may ignore the condition. */
    public static final String SINGLE_DRIVER = "delta_cdc.single.driver";

    private static final String CONDITION = "fs.option.create.conditional.overwrite";
    private static final String IN_PARTS = "fs.s3a.create.multipart";
    /** S3A repeats requests itself; these attempts are for a conflict (409) that leaves no object behind. */
    private static final int ATTEMPTS = 3;

    /** Why a store cannot be used, by store and kind of upload; an empty text if it can. */
    private static final Map<String, String> REFUSALS = new ConcurrentHashMap<>();

    public S3ConditionalLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite) {
            super.write(path, actions, true, conf);
            return;
        }
        FileSystem fs = path.getFileSystem(conf);
        byte[] content = lines(actions);
        String refusal = refusal(fs, path.getParent(), isUploadedInParts(fs, content));
        if (refusal.isEmpty()) {
            create(fs, path, content, false);
        } else if (conf.getBoolean(SINGLE_DRIVER, false)) {
            super.write(path, new String(content, StandardCharsets.UTF_8).lines().iterator(), false, conf);
        } else {
            throw new IOException("Not committed, because several drivers could lose commits: " + refusal);
        }
    }

    /**
     * Return why the active Spark session cannot commit conditionally at a table's location; an empty text if it can.
     *
     * @param location of the table, which need not exist
     */
    public static String refusal(String location) throws IOException {
        Path log = new Path(location, "_delta_log");
        return refusal(log.getFileSystem(SparkSession.active().sessionState().newHadoopConf()), log, false);
    }

    private static String refusal(FileSystem fs, Path folder, boolean inParts) throws IOException {
        String store = String.join(" ", fs.getUri().toString(), fs.getConf().get("fs.s3a.endpoint"), "" + inParts);
        String known = REFUSALS.get(store);
        if (known == null) {
            known = tested(fs, folder, inParts);
            REFUSALS.put(store, known);
        }
        return known;
    }

    /** Create an object twice: a store that accepts the second one ignores the condition. */
    private static String tested(FileSystem fs, Path folder, boolean inParts) throws IOException {
        if (!fs.hasPathCapability(folder, CONDITION)) {
            return fs.getClass().getName() + " does not offer " + CONDITION + "; S3A of Hadoop 3.4.2 or later does, "
                + "unless fs.s3a.create.conditional.enabled is false.";
        }
        Path probe = new Path(folder, "_delta_cdc_probe_" + UUID.randomUUID());
        try {
            // Any content, but not the same: create() takes equal content for its own.
            create(fs, probe, new byte[] {'1'}, inParts);
            create(fs, probe, new byte[] {'2'}, inParts);
        } catch (FileAlreadyExistsException refused) {
            return "";
        } finally {
            deleteIfPermitted(fs, probe);
        }
        return fs.getUri() + " ignores If-None-Match" + (inParts ? " on uploads in parts" : "")
            + ": it overwrote an object that a request asked it not to overwrite.";
    }

    private static void deleteIfPermitted(FileSystem fs, Path path) {
        try {
            fs.delete(path, false);
        } catch (IOException left) {
            // An identity without the right to delete leaves one byte behind, which no reader of a log looks at.
        }
    }

    /**
     * Create a file with one conditional request, and find out what an unclear answer meant.
     *
     * <p>If the answer to a request is lost, S3A repeats it and is told that the object exists: it is our own. So after
     * any failure the object itself decides, because commits differ (each has an id of its transaction).
     *
     * @throws FileAlreadyExistsException another writer created the file
     * @throws IOException it is unknown whether the file was created, or it was not
     */
    private static void create(FileSystem fs, Path path, byte[] content, boolean inParts) throws IOException {
        for (int attempt = 1; ; attempt++) {
            try {
                put(fs, path, content, inParts);
                return;
            } catch (IOException failure) {
                Boolean isOurs = null;
                try {
                    isOurs = holds(fs, path, content);
                } catch (FileNotFoundException absent) {
                    // Repeating is safe: of our requests, too, only one can create the object.
                } catch (IOException unreadable) {
                    failure.addSuppressed(unreadable);
                }
                if (Boolean.TRUE.equals(isOurs)) {
                    return;
                }
                if (Boolean.FALSE.equals(isOurs)) {
                    throw new FileAlreadyExistsException(path.toString());
                }
                if (attempt == ATTEMPTS) {
                    throw failure;
                }
            }
        }
    }

    private static void put(FileSystem fs, Path path, byte[] content, boolean inParts) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path);
        builder.create();
        builder.overwrite(true);
        builder.recursive();
        builder.must(CONDITION, true);
        if (inParts) {
            builder.must(IN_PARTS, true);
        }
        FSDataOutputStream out = builder.build();
        try {
            out.write(content);
        } catch (IOException failure) {
            // Closing the stream would upload what it has.
            out.abort();
            throw failure;
        }
        out.close();
    }

    private static boolean holds(FileSystem fs, Path path, byte[] content) throws IOException {
        FileStatus status = fs.getFileStatus(path);
        if (status.getLen() != content.length) {
            return false;
        }
        byte[] found = new byte[content.length];
        try (FSDataInputStream in = fs.open(path)) {
            in.readFully(0, found);
        }
        return Arrays.equals(found, content);
    }

    /** Return whether S3A uploads some content in parts, to whose end the condition applies then. */
    private static boolean isUploadedInParts(FileSystem fs, byte[] content) {
        Configuration conf = fs.getConf();
        return content.length >= conf.getLongBytes("fs.s3a.multipart.size", 64L << 20)
            && conf.getBoolean("fs.s3a.multipart.uploads.enabled", true);
    }

    private static byte[] lines(Iterator<String> actions) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            bytes.writeBytes((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        return bytes.toByteArray();
    }
}
