// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;

/// TCP ports for tests that must know a port before it is bound, or that rebind one after a
/// restart. They are below the ephemeral range, from which the kernel could take a port before the
/// test binds it. A process reuses a port only after all others of its range, and processes started
/// at about the same time use different ranges.
///
/// Threading: any thread.
public final class FreePorts {
    private static final int LOWEST = 20_000;
    private static final int RANGES = 60;
    private static final int RANGE = 200;

    private static final int FIRST =
            LOWEST + (int) (ProcessHandle.current().pid() % RANGES) * RANGE;
    private static final AtomicInteger NEXT =
            new AtomicInteger(FIRST + ThreadLocalRandom.current().nextInt(RANGE));

    private FreePorts() {}

    /// A port on which nobody listens now.
    ///
    /// @throws IOException when there is none
    public static int freePort() throws IOException {
        return freePorts(1);
    }

    /// The first of `count` ports in a row on which nobody listens now.
    ///
    /// @throws IOException when there are none
    public static synchronized int freePorts(int count) throws IOException {
        for (int tries = 0; tries < 2 * RANGE; tries++) {
            int next = NEXT.get();
            int first = next + count > FIRST + RANGE ? FIRST : next;
            NEXT.set(first + count);
            if (areFree(first, count)) {
                return first;
            }
        }
        throw new IOException(
                "no " + count + " free ports in a row from " + FIRST + " to " + (FIRST + RANGE));
    }

    private static boolean areFree(int first, int count) throws IOException {
        var open = new ArrayList<ServerSocket>();
        try {
            for (int i = 0; i < count; i++) {
                open.add(new ServerSocket(first + i, 1, InetAddress.getLoopbackAddress()));
            }
            return true;
        } catch (IOException e) {
            return false; // taken
        } finally {
            for (var socket : open) {
                socket.close();
            }
        }
    }
}
