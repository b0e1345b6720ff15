package delta.cdc;

import io.delta.storage.HDFSLogStore;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Iterator;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Delta's log store for local and network disks, with commits that any number of drivers may make: each commit is a
 * hard link to a complete file, which the operating system refuses if the version exists.
 *
 * <p>Delta's own log store looks whether the version exists, and then renames a file; a rename replaces the version that
 * another driver has made in between. Listing and reading are Delta's own.
 */
public class FileLinkLogStore extends HDFSLogStore {
    private static final boolean HAS_PERMISSIONS =
        FileSystems.getDefault().supportedFileAttributeViews().contains("posix");

    /** Reasons that say nothing about hard links, as the C library words them. */
    private static final Set<String> TRANSIENT = Set.of(
        "Input/output error", "No space left on device", "Disk quota exceeded", "Permission denied",
        "Read-only file system", "Stale file handle", "Connection timed out");

    public FileLinkLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        FileSystem fs = path.getFileSystem(conf);
        File file = local(fs, path);
        byte[] content = Creation.lines(actions);
        // As Delta names its own: no reader looks at what a killed driver leaves.
        File draft = local(fs, createTempPath(path));
        try {
            fill(draft, content, conf);
            if (overwrite || !file.exists()) {
                // Hadoop's checksum of an earlier file of this name would make the new one unreadable.
                Files.deleteIfExists(local(fs, new Path(path.getParent(), "." + path.getName() + ".crc")).toPath());
            }
            if (overwrite) {
                Files.move(draft.toPath(), file.toPath(), StandardCopyOption.ATOMIC_MOVE);
            } else {
                Creation.create(fs, path, content, () -> linked(file, draft));
            }
        } catch (NoLinkException refused) {
            Creation.requireSingleDriver(conf, refused.getMessage());
            super.write(path, Creation.actions(content), false, conf);
        } finally {
            // A draft that stays is no reason to call the commit failed.
            draft.delete();
        }
    }

    /** Give a file a second name, unless that name is taken. A program of the tests waits here. */
    protected void link(File file, File draft) throws IOException {
        Files.createLink(file.toPath(), draft.toPath());
    }

    private void linked(File file, File draft) throws IOException {
        try {
            link(file, draft);
        } catch (FileAlreadyExistsException taken) {
            throw taken;
        } catch (IOException | UnsupportedOperationException failure) {
            if (isOfTheDevice(failure)) {
                throw failure;
            }
            throw new NoLinkException(file.getParentFile() + " took no hard link: " + failure.getMessage(), failure);
        }
    }

    /** Return whether a disk failed that may well make hard links: another try can succeed. */
    private static boolean isOfTheDevice(Exception failure) {
        String reason = failure instanceof FileSystemException known ? String.valueOf(known.getReason()) : "";
        return failure instanceof AccessDeniedException || TRANSIENT.contains(reason);
    }

    /** Return a path as Hadoop's local file systems understand it. */
    private static File local(FileSystem fs, Path path) {
        return new File(fs.makeQualified(path).toUri().getPath());
    }

    /** Write a new file to the disk, with the permissions that Hadoop gives to files. */
    private static void fill(File file, byte[] content, Configuration conf) throws IOException {
        // Not a channel: the end of a job interrupts its threads, and that would close the channel.
        try (FileOutputStream out = new FileOutputStream(file)) {
            if (HAS_PERMISSIONS) {
                FsPermission permission = FsPermission.getFileDefault().applyUMask(FsPermission.getUMask(conf));
                Files.setPosixFilePermissions(file.toPath(), PosixFilePermissions.fromString(permission.toString()));
            }
            out.write(content);
            out.getFD().sync();
        }
    }

    /** A disk has made no hard link, though it has taken the file that the link is to. */
    private static final class NoLinkException extends IOException {
        private static final long serialVersionUID = 1;

        NoLinkException(String message, Throwable cause) {
            super(message, cause);
        }
    }
}
