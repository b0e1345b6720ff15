import java.io.IOException;

/**
 * The end of a process, without the end of the JVM: from a chosen operation on, no operation changes a disk any more.
 *
 * <p>A test arms it with the number of operations that still happen. What is on the disk afterwards is what a process
 * leaves that is killed between two operations.
 */
public final class Stop {
    private static long left = Long.MAX_VALUE;
    private static long count = 0;
    private static boolean isStopped = false;

    private Stop() {}

    /** Let some more operations happen, and count from 0. */
    public static synchronized void arm(long operations) {
        left = operations;
        count = 0;
        isStopped = false;
    }

    /** Return how many operations have happened since the last call of {@link #arm}. */
    public static synchronized long count() {
        return count;
    }

    public static synchronized boolean stopped() {
        return isStopped;
    }

    /** Count an operation that is about to change the disk, or refuse it. */
    static synchronized void step() throws IOException {
        if (isStopped || left == 0) {
            isStopped = true;
            throw new IOException("the process was stopped here");
        }
        left--;
        count++;
    }
}
