// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import static io.kvferry.tck.FreePorts.freePort;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Assumptions;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// A real Mooncake cluster on this machine: a master process, and this JVM as the one that has the
/// memory.
public final class RealCluster implements AutoCloseable {
    /// Of leases, in milliseconds.
    public static final long LEASE_MS = 1000;

    private static final String MASTER = "mooncake_master";

    private final int port;
    private final int httpPort;
    private Process master;
    private final ClusterStore owner;

    /// Starts one, or skips the test where there is no Mooncake.
    public RealCluster(long segmentBytes) {
        try {
            port = freePort();
            httpPort = freePort();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        master = start();
        owner =
                ClusterStore.open(
                        config().withSegment(segmentBytes), new StoreIdentity("", "owner", ""));
    }

    static Path library() {
        var named =
                Optional.ofNullable(System.getenv(ClusterConfig.LIBRARY_VARIABLE))
                        .filter(text -> !text.isBlank());
        Assumptions.assumeTrue(
                named.isPresent(),
                "no real Mooncake store: interop/run store installs one, or name its library in "
                        + ClusterConfig.LIBRARY_VARIABLE);
        return Path.of(named.orElseThrow());
    }

    private Process start() {
        Path program = library().resolveSibling(MASTER);
        Assumptions.assumeTrue(
                Files.isExecutable(program), "no " + MASTER + " beside " + library());
        try {
            var started =
                    new ProcessBuilder(
                                    program.toString(),
                                    "--rpc_address=127.0.0.1",
                                    "--rpc_port=" + port,
                                    "--metrics_host=127.0.0.1",
                                    "--metrics_port=" + httpPort,
                                    "--default_kv_lease_ttl=" + LEASE_MS)
                            .redirectErrorStream(true)
                            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                            .start();
            var limit = Deadline.in(Duration.ofSeconds(55));
            while (!listens()) {
                if (limit.passed() || !started.isAlive()) {
                    started.destroyForcibly();
                    throw new IllegalStateException("the master does not start");
                }
                LockSupport.parkNanos(20_000_000);
            }
            return started;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private boolean listens() {
        try (var socket = new Socket()) {
            socket.connect(new InetSocketAddress("127.0.0.1", port), 1000);
            return true;
        } catch (IOException e) {
            return false;
        }
    }

    /// `host:port` of the master.
    public String master() {
        return "127.0.0.1:" + port;
    }

    /// Of its admin API.
    public int httpPort() {
        return httpPort;
    }

    /// A requester, with limits that do not decide on a busy machine.
    public ClusterConfig config() {
        return ClusterConfig.requester(master())
                .withLibrary(library())
                .withLimits(Duration.ofSeconds(50), Duration.ofSeconds(50));
    }

    /// As kill -9.
    public void killMaster() {
        end(master);
    }

    public void restartMaster() {
        master = start();
    }

    private static void end(Process process) {
        process.destroyForcibly();
        try {
            if (!process.waitFor(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the master does not die");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void close() {
        owner.close();
        end(master);
    }
}
