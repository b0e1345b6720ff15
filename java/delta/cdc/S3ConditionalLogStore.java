package delta.cdc;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
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
    private static final String CONDITION = "fs.option.create.conditional.overwrite";
    private static final String IN_PARTS = "fs.s3a.create.multipart";
    private static final String FAST_LISTING = "delta.enableFastS3AListFrom";

    /** Why a store cannot be used, by store and kind of upload; an empty text if it can. */
    private static final Map<String, String> REFUSALS = new ConcurrentHashMap<>();

    public S3ConditionalLogStore(Configuration conf) {
        super(listingOneFolder(conf));
    }

    /** Until Delta 4.4.1, a fast listing of a log also has files of folders inside it and beside it. */
    private static Configuration listingOneFolder(Configuration conf) {
        Configuration changed = new Configuration(conf);
        changed.setBoolean(FAST_LISTING, false);
        return changed;
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite) {
            super.write(path, actions, true, conf);
            return;
        }
        FileSystem fs = path.getFileSystem(conf);
        byte[] content = Creation.lines(actions);
        String refusal = refusal(fs, path.getParent(), isUploadedInParts(fs, content));
        if (refusal.isEmpty()) {
            create(fs, path, content, false);
        } else {
            Creation.requireSingleDriver(conf, refusal);
            super.write(path, Creation.actions(content), false, conf);
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

    private static void create(FileSystem fs, Path path, byte[] content, boolean inParts) throws IOException {
        Creation.create(fs, path, content, () -> put(fs, path, content, inParts));
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

    /** Return whether S3A uploads some content in parts, to whose end the condition applies then. */
    private static boolean isUploadedInParts(FileSystem fs, byte[] content) {
        Configuration conf = fs.getConf();
        return content.length >= conf.getLongBytes("fs.s3a.multipart.size", 64L << 20)
            && conf.getBoolean("fs.s3a.multipart.uploads.enabled", true);
    }
}
