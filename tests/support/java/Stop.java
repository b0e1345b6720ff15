import java.io.IOException;

/**
 * The end of a process, without the end of the JVM: from a chosen operation on, no operation changes a store any more.
 *
 * <p>A test arms it with the number of operations that still happen. What is in the store afterwards is what a process
 * leaves that is killed there. Or the chosen operation waits, as that of a frozen process, while all others go on.
 */
public final class Stop {
    /**
     * What becomes of the chosen operation: it is left out, done, or half done; it waits for {@link #release}; or the
     * JVM asks for more memory than there is, with an option that makes this its end.
     */
    private enum Ending { BEFORE, AFTER, TORN, FROZEN, OOM }

    private static Ending ending = Ending.BEFORE;
    private static long left = Long.MAX_VALUE;
    private static long count = 0;
    private static boolean isStopped = false;
    private static boolean isHeld = false;

    private Stop() {}

    interface Operation<T> {
        T run() throws IOException;
    }

    /** The half of an operation. */
    interface Half {
        void run() throws IOException;
    }

    /** Let some more operations happen, and count from 0. */
    public static synchronized void arm(long operations, String ends) {
        ending = Ending.valueOf(ends);
        left = operations;
        count = 0;
        isStopped = false;
        release();
    }

    /** Return how many operations have happened since the last call of {@link #arm}. */
    public static synchronized long count() {
        return count;
    }

    public static synchronized boolean stopped() {
        return isStopped;
    }

    /** Wait up to so many milliseconds for an operation that waits; return whether there is one. */
    public static synchronized boolean held(long milliseconds) throws InterruptedException {
        if (!isHeld) {
            Stop.class.wait(milliseconds);
        }
        return isHeld;
    }

    /** Let the operation that waits happen. */
    public static synchronized void release() {
        isHeld = false;
        Stop.class.notifyAll();
    }

    /** Do an operation that changes the store, or what the chosen ending makes of it, or refuse it. */
    static <T> T step(Operation<T> operation, Half half) throws IOException {
        Ending here = reached();
        if (here == null) {
            return operation.run();
        }
        if (here == Ending.AFTER) {
            operation.run();
        } else if (here == Ending.TORN) {
            half.run();
        }
        throw new IOException("the process was stopped here");
    }

    /** Count an operation, and return what ends it: null if nothing does. */
    private static synchronized Ending reached() {
        if (isStopped) {
            return Ending.BEFORE;
        }
        count++;
        if (left-- != 0) {
            return null;
        }
        if (ending == Ending.OOM) {
            int length = new long[Integer.MAX_VALUE].length;
            throw new IllegalStateException("there was memory for " + length + " numbers");
        }
        if (ending != Ending.FROZEN) {
            isStopped = true;
            return ending;
        }
        isHeld = true;
        Stop.class.notifyAll();
        try {
            while (isHeld) {
                Stop.class.wait();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        return null;
    }
}
