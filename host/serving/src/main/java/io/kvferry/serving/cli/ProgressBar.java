// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import java.io.PrintWriter;
import java.util.concurrent.locks.ReentrantLock;

/// Phases as lines and, on a terminal, a bar in the last line.
///
/// Threading: any thread.
public final class ProgressBar implements Progress, AutoCloseable {
    private static final int WIDTH = 30;
    private static final String ERASE = "\r\033[K";

    private final String name;
    private final PrintWriter err;
    private final boolean terminal;
    private final ReentrantLock lock = new ReentrantLock();

    /// @param name of the command, before each phase
    /// @param err where to write
    public ProgressBar(String name, PrintWriter err) {
        this.name = name;
        this.err = err;
        this.terminal = hasTerminal();
    }

    @SuppressWarnings(
            "SystemConsoleNull") // null again from JDK 25 on, where no terminal is attached
    private static boolean hasTerminal() {
        return System.console() != null && System.console().isTerminal();
    }

    @Override
    public void phase(String what) {
        write((terminal ? ERASE : "") + name + ": " + what + System.lineSeparator());
    }

    @Override
    public void advance(int done, int total) {
        if (terminal && total > 0) {
            int full = Math.min(WIDTH, WIDTH * done / total);
            write(
                    ERASE
                            + "["
                            + "#".repeat(full)
                            + ".".repeat(WIDTH - full)
                            + "] "
                            + done
                            + "/"
                            + total);
        }
    }

    private void write(String text) {
        lock.lock();
        try {
            err.print(text);
            err.flush();
        } finally {
            lock.unlock();
        }
    }

    /// Erases the bar.
    @Override
    public void close() {
        if (terminal) {
            write(ERASE);
        }
    }
}
