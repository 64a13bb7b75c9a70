// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static io.kvferry.backend.nccl.engines.P2pEngines.TOKENS;
import static io.kvferry.backend.nccl.engines.P2pEngines.alone;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingHeld;
import static io.kvferry.backend.nccl.engines.P2pEngines.assertNothingStaged;
import static io.kvferry.backend.nccl.engines.P2pEngines.decode;
import static io.kvferry.backend.nccl.engines.P2pEngines.finished;
import static io.kvferry.backend.nccl.engines.P2pEngines.freePorts;
import static io.kvferry.backend.nccl.engines.P2pEngines.host;
import static io.kvferry.backend.nccl.engines.P2pEngines.loaded;
import static io.kvferry.backend.nccl.engines.P2pEngines.options;
import static io.kvferry.backend.nccl.engines.P2pEngines.prefill;
import static io.kvferry.backend.nccl.engines.P2pEngines.prompt;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokens;
import static io.kvferry.backend.nccl.engines.P2pEngines.tokensAlone;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.gpu.GpuDriver;
import io.kvferry.backend.nccl.gpu.HangingDriver;
import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.NcclDouble.Count;
import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.backend.nccl.gpu.NcclPlane;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.backend.nccl.plane.JoinedPlane;
import io.kvferry.engine.Engine;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Finding;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;

/// Whole engines that hand over over the C double of NCCL: every loaded byte is verified.
class NcclHandOverTest {
    private static final long ROOM = 64 << 20;

    private final NcclDouble nccl = NcclDouble.load();

    @BeforeEach
    void reset() {
        nccl.reset();
    }

    @AfterEach
    void nothingStays() {
        nccl.assertClean();
    }

    /// The connector with these planes.
    private KvConnectorProvider provider(boolean overNccl, boolean overTcp) {
        return provider(() -> planes(overNccl, overTcp, nccl.driver(), P2pEngines.SOON));
    }

    private KvConnectorProvider provider(Supplier<DataPlane> planes) {
        var real = new P2pNcclConnectorProvider();
        return (KvConnectorProvider)
                Proxy.newProxyInstance(
                        getClass().getClassLoader(),
                        new Class<?>[] {KvConnectorProvider.class},
                        (_, method, arguments) -> {
                            if (method.getName().equals("openWorker")) {
                                var context = (WorkerContext) arguments[0];
                                return new P2pWorker(context, planes.get());
                            }
                            try {
                                return method.invoke(real, arguments);
                            } catch (InvocationTargetException e) {
                                throw e.getCause();
                            }
                        });
    }

    /// @param turn limit of one operation
    private DataPlane planes(boolean overNccl, boolean overTcp, GpuDriver driver, Duration turn) {
        var planes = new ArrayList<DataPlane>();
        if (overNccl) {
            var limit = P2pEngines.SOON;
            planes.add(
                    NcclPlane.open(
                            "test-nccl",
                            "127.0.0.1",
                            "127.0.0.1",
                            nccl.library(),
                            driver,
                            new NcclPlane.Limits(256 << 10, limit, turn, Duration.ofHours(1), 0)));
        }
        if (overTcp) {
            planes.add(HostPlane.open("test-host", "127.0.0.1", "127.0.0.1", HostPlane.Ways.ANY));
        }
        return new JoinedPlane(planes);
    }

    @ParameterizedTest
    @CsvSource({"PUT_ASYNC,1,false", "PUT_ASYNC,2,true", "PUT,1,true", "GET,2,false", "GET,1,true"})
    void handsOverOverNccl(String mode, int tp, boolean decoderFirst) throws IOException {
        nccl.set(Knob.GROUP_POLLS, 1);
        handOver(mode, tp, decoderFirst, provider(true, true), provider(true, true));
        assertThat(nccl.count(Count.SENDS)).isPositive();
        assertThat(nccl.count(Count.IDS)).as("a communicator for each pair of ranks").isEqualTo(tp);
    }

    /// Peers of which one has no NCCL use what both have.
    @ParameterizedTest
    @CsvSource({"true,false", "false,true"})
    void fallsBackToTheHostPlaneWhereOneSideHasNoNccl(boolean prefiller, boolean decoder)
            throws IOException {
        handOver("PUT_ASYNC", 1, false, provider(prefiller, true), provider(decoder, true));
        handOver("GET", 1, true, provider(prefiller, true), provider(decoder, true));
        assertThat(nccl.count(Count.INITS)).isZero();
    }

    /// The first transfer fails with the communicator; what is tried again goes over TCP.
    @Test
    void fallsBackToTheHostPlaneWhereNoCommunicatorCanBeMade() throws IOException {
        nccl.set(Knob.FAIL_INIT, 1);
        handOver("GET", 1, true, provider(true, true), provider(true, true));
        assertThat(nccl.count(Count.SENDS)).isZero();
    }

    /// As where a firewall lets NCCL's bootstrap pass and not its data.
    @Test
    void fallsBackToTheHostPlaneWhereACommunicatorFailsAtWork() throws IOException {
        nccl.set(Knob.FAIL_GROUP, 1);
        handOver("GET", 1, true, provider(true, true), provider(true, true));
        // Each side tries one batch at most: what is tried again goes over TCP.
        assertThat(nccl.count(Count.GROUPS)).as("groups that were tried").isBetween(1L, 2L);
        assertThat(nccl.count(Count.INITS)).as("one communicator").isEqualTo(2);
    }

    /// The engine goes on over the other plane, and its health says that the GPU hangs.
    @Test
    void aDriverThatHangsCostsNoTokenAndShowsInTheHealth() throws IOException {
        var hanging = new HangingDriver(nccl.driver(), "upload");
        int pPort = freePorts(1);
        int dPort = freePorts(1);
        var hasty = provider(() -> planes(true, true, hanging.driver(), Duration.ofSeconds(3)));
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p =
                        P2pEngines.open(
                                KvRole.PRODUCER,
                                1,
                                options("GET", pPort),
                                HostServices.NONE,
                                hasty);
                var d =
                        P2pEngines.open(
                                KvRole.CONSUMER,
                                1,
                                options("GET", dPort),
                                host(pool),
                                provider(true, true))) {
            hanging.hang();
            try {
                for (int i = 0; i < 2; i++) {
                    int[] prompt = prompt(i, TOKENS);
                    finished(prefill(p, prompt, "x" + i, dPort));
                    var outcome = finished(decode(d, prompt, "x" + i, pPort));
                    assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                    assertThat(loaded(outcome)).isGreaterThanOrEqualTo(TOKENS - 1);
                }
                hanging.awaitHang();
                awaitHealth(p, true);
            } finally {
                hanging.release();
            }
            awaitHealth(p, false);
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    private static void awaitHealth(Engine engine, boolean bad) {
        var limit = Deadline.in(P2pEngines.SOON);
        while (engine.stats().health().isEmpty() == bad) {
            assertThat(limit.passed()).as("health %s", engine.stats().health()).isFalse();
            LockSupport.parkNanos(10_000_000);
        }
    }

    private void handOver(
            String mode,
            int tp,
            boolean decoderFirst,
            KvConnectorProvider prefiller,
            KvConnectorProvider decoder)
            throws IOException {
        int pPort = freePorts(tp);
        int dPort = freePorts(tp);
        try (var pool = new BuddyStagingPool(ROOM);
                var alone = alone(Map.of());
                var p =
                        P2pEngines.open(
                                KvRole.PRODUCER,
                                tp,
                                options(mode, pPort),
                                HostServices.NONE,
                                prefiller);
                var d =
                        P2pEngines.open(
                                KvRole.CONSUMER, tp, options(mode, dPort), host(pool), decoder)) {
            for (int i = 0; i < 4; i++) {
                int[] prompt = prompt(i, TOKENS + i);
                var early = decoderFirst ? decode(d, prompt, "x" + i, pPort) : null;
                finished(prefill(p, prompt, "x" + i, dPort));
                var outcome = finished(early != null ? early : decode(d, prompt, "x" + i, pPort));
                assertThat(tokens(outcome)).isEqualTo(tokensAlone(alone, prompt));
                assertThat(loaded(outcome)).isGreaterThanOrEqualTo(prompt.length - 1);
            }
            assertNothingHeld(p);
            assertNothingHeld(d);
            assertNothingStaged(pool);
        }
    }

    /// This machine has no JCuda on its class path with natives, or no GPU.
    @Test
    void ncclOnAMachineWithoutItIsRefusedWithWhatToInstall() throws IOException {
        var findings = new P2pNcclConnectorProvider().diagnose();
        assertThat(findings).extracting(Finding::what).contains("NCCL", "CUDA driver", "JCuda");
        Assumptions.assumeFalse(Files.exists(Path.of("/dev/nvidia0")), "this machine has a GPU");
        var options = options("GET", freePorts(1));
        options.put("data_plane", "nccl");
        assertThatThrownBy(() -> P2pEngines.prefiller(1, Map.of(), options).close())
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining("data_plane is nccl");
        options.put("data_plane", "auto");
        P2pEngines.prefiller(1, Map.of(), options).close();
        options.put("nccl_num_channels", "100");
        assertThatThrownBy(() -> P2pEngines.prefiller(1, Map.of(), options).close())
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("nccl_num_channels");
    }
}
