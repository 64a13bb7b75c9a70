// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.master;

import io.kvferry.backend.mooncake.store.remote.OwnerChild;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/// A master in a process of its own. It ends with the end of its standard input.
public final class MasterChild implements AutoCloseable {
    private final OwnerChild.Child child;

    /// Starts one on a port, 0 for any, and waits until it is ready.
    public MasterChild(int port) throws Exception {
        this.child =
                new OwnerChild.Child(
                        List.of(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "-Xmx64m",
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1",
                                "-cp",
                                System.getProperty("java.class.path"),
                                MasterChild.class.getName(),
                                Integer.toString(port)));
    }

    /// `host:port`
    public String address() {
        return child.address();
    }

    /// As kill -9.
    public void kill() {
        child.kill();
    }

    @Override
    public void close() {
        kill();
    }

    /// The child's side.
    public static void main(String[] arguments) throws IOException {
        var settings =
                new StoreMaster.Settings(
                        "127.0.0.1",
                        Integer.parseInt(arguments[0]),
                        Duration.ofSeconds(10),
                        Optional.empty(),
                        false);
        try (var master = StoreMaster.start(settings)) {
            System.out.println("{\"address\": \"" + master.address() + "\"}");
            System.out.flush();
            while (System.in.read() >= 0) {
                // until it ends
            }
        }
    }
}
