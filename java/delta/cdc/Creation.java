package delta.cdc;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** What our log stores share: a version is created once, whatever the storage answers. */
final class Creation {
    /** Hadoop conf: the user guarantees a single driver, so the storage may let one overwrite a version. */
    private static final String SINGLE_DRIVER = "delta_cdc.single.driver";
    /** Clients of a storage repeat requests themselves; these attempts are for a failure that leaves no file. */
    private static final int ATTEMPTS = 3;

    private Creation() {}

    /** One request to create a file, which the storage refuses if the file exists. */
    interface Request {
        void send() throws IOException;
    }

    /**
     * Create a file by a request, and find out what an unclear answer meant.
     *
     * <p>If the answer to a request is lost, the client repeats it and is told that the file exists: it is our own. So
     * after any failure the file itself decides, because commits differ (each has an id of its transaction).
     *
     * @throws FileAlreadyExistsException another writer created the file
     * @throws IOException it is unknown whether the file was created, or it was not
     */
    static void create(FileSystem fs, Path path, byte[] content, Request request) throws IOException {
        for (int attempt = 1; ; attempt++) {
            try {
                request.send();
                return;
            } catch (IOException failure) {
                Boolean isOurs = null;
                try {
                    isOurs = holds(fs, path, content);
                } catch (FileNotFoundException absent) {
                    // Repeating is safe: of our requests, too, only one can create the file.
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

    /**
     * Refuse a commit that another driver could overwrite, unless the user guarantees that there is none.
     *
     * @param refusal why the storage does not exclude it, a sentence
     */
    static void requireSingleDriver(Configuration conf, String refusal) throws IOException {
        if (!conf.getBoolean(SINGLE_DRIVER, false)) {
            throw new IOException("Not committed, because several drivers could lose commits: " + refusal);
        }
    }

    /** Return the content of a file of a log. */
    static byte[] lines(Iterator<String> actions) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            bytes.writeBytes((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        return bytes.toByteArray();
    }

    /** Return the actions in the content of a file of a log. */
    static Iterator<String> actions(byte[] content) {
        return new String(content, StandardCharsets.UTF_8).lines().iterator();
    }
}
