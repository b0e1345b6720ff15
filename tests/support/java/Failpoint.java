import java.io.IOException;
import java.nio.file.FileSystemException;
import java.util.Random;

/**
 * What happens to a process between its look whether a version exists and the creation of the version, and after that.
 *
 * <p>The system property "failpoint" names it: "pause MS" sleeps for up to so long before each creation, "stop before N"
 * and "stop after N" stop the process (SIGSTOP) at its creation N, "lose N" loses the answer to creation N, "refuse" is
 * a disk that makes no hard links, and "break" one that fails.
 */
final class Failpoint {
    private static final String[] KIND = System.getProperty("failpoint", "none").split(" ");
    private static final Random RANDOM = new Random(ProcessHandle.current().pid());
    private static int creations = 0;

    private Failpoint() {}

    interface Creation {
        void run() throws IOException;
    }

    static synchronized void around(String name, Creation creation) throws IOException {
        if (!name.endsWith(".json")) {
            creation.run();
            return;
        }
        creations++;
        reach("before");
        creation.run();
        reach("after");
    }

    private static void reach(String place) throws IOException {
        boolean isNow = KIND[KIND.length - 1].equals(Integer.toString(creations));
        boolean isBefore = place.equals("before");
        if (KIND[0].equals("refuse")) {
            throw new FileSystemException("a", "b", "Operation not permitted");
        }
        if (KIND[0].equals("break")) {
            throw new FileSystemException("a", "b", "Input/output error");
        }
        if (KIND[0].equals("lose") && isNow && !isBefore) {
            throw new FileSystemException("a", "b", "Input/output error");
        }
        try {
            if (KIND[0].equals("pause") && isBefore) {
                Thread.sleep(RANDOM.nextInt(Integer.parseInt(KIND[1]) + 1));
            }
            if (KIND[0].equals("stop") && KIND[1].equals(place) && isNow) {
                new ProcessBuilder("kill", "-STOP", Long.toString(ProcessHandle.current().pid())).start().waitFor();
                // On a busy machine, the signal may reach this thread later than the end of "kill".
                Thread.sleep(200);
            }
        } catch (InterruptedException interrupted) {
            throw new IOException(interrupted);
        }
    }
}
