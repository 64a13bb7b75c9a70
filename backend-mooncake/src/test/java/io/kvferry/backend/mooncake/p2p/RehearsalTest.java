// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.plane.DataPlane;
import io.kvferry.backend.mooncake.p2p.plane.OwnEngine;
import io.kvferry.backend.mooncake.p2p.testkit.ListeningPorts;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// What a connector does before its first request, so that this one finds everything loaded.
class RehearsalTest {
    @TempDir private Path folder;

    private static WorkerContext context(Map<String, Object> options) {
        var config = ConnectorConfig.of("MooncakeConnector", KvRole.BOTH, "e", options);
        var cache =
                new KvCacheSpec(
                        List.of(
                                new KvCacheGroup(
                                        0,
                                        KvCacheGroup.Kind.FULL_ATTENTION,
                                        new KvFormat.Heads(DType.UINT8, KvLayout.LBHNC, 1, 8),
                                        List.of("l"),
                                        16,
                                        128)),
                        4);
        var namespace = new CacheNamespace("m", "r", DType.UINT8, KvLayout.LBHNC, 1, 16, 1, 1, "");
        return new WorkerContext(
                "mooncake",
                config,
                MooncakeSettings.SCHEMA.read("mooncake", options),
                new EngineInfo("m", namespace, cache, 1, 0, 1),
                new RankInfo(0, 1, 0, 1, 0, 1),
                HostServices.NONE);
    }

    /// With options that name the fleet's ports and services, which it has to leave alone.
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void handsOverBehindASecretAndLeavesNothing(boolean sameHost) throws Exception {
        var secret = Files.writeString(folder.resolve("secret"), "0123456789abcdef");
        var context =
                context(
                        Map.of(
                                "secret_file",
                                secret.toString(),
                                "bootstrap_server_address",
                                "127.0.0.1:1",
                                "bootstrap_port",
                                1,
                                "min_port",
                                1,
                                "max_port",
                                1));
        var ports = ListeningPorts.now();
        Rehearsal.handOff(
                context,
                MooncakeConnectorProvider::plane,
                sameHost,
                Deadline.in(Duration.ofSeconds(60)));
        assertThat(ports).containsAll(ListeningPorts.now());
    }

    /// No memory for the cache of the second side, when the first one stands.
    @ParameterizedTest
    @ValueSource(strings = {"offer", "register"})
    void whatEndsInAnErrorLeavesNothing(String call) throws IOException {
        var ports = ListeningPorts.now();
        var planes = new AtomicInteger();
        assertThatThrownBy(() ->
                        Rehearsal.handOff(
                                context(Map.of()),
                                of ->
                                        planes.incrementAndGet() == 1
                                                ? MooncakeConnectorProvider.plane(of)
                                                : failing(of, call),
                                true,
                                Deadline.in(Duration.ofSeconds(60))))
                .isInstanceOf(OutOfMemoryError.class);
        assertThat(ports).containsAll(ListeningPorts.now());
        assertThat(planes).hasValue(2);
    }

    /// A plane whose engine has no memory left for one of its calls.
    private static DataPlane failing(WorkerContext context, String call) {
        var plane = (OwnEngine) MooncakeConnectorProvider.plane(context);
        var engine =
                (TransferEngine)
                        Proxy.newProxyInstance(
                                RehearsalTest.class.getClassLoader(),
                                new Class<?>[] {TransferEngine.class},
                                (_, method, arguments) -> {
                                    if (method.getName().equals(call)) {
                                        throw new OutOfMemoryError("says the test");
                                    }
                                    try {
                                        return method.invoke(plane.engine(), arguments);
                                    } catch (InvocationTargetException e) {
                                        throw e.getCause();
                                    }
                                });
        return new OwnEngine(engine, true);
    }

    @Test
    void givesUpInTime() {
        assertThatThrownBy(() ->
                        Rehearsal.handOff(
                                context(Map.of()),
                                MooncakeConnectorProvider::plane,
                                false,
                                Deadline.in(Duration.ZERO)))
                .isInstanceOf(KvFerryException.class);
    }

    /// Two JVMs take 9 s of processor time, of which a busy machine gives them little.
    @Test
    @Timeout(value = 5, unit = TimeUnit.MINUTES)
    void theFirstHandOverOfAProcessFindsMostClassesLoaded() throws Exception {
        int with = classesOfTheFirst(true);
        int without = classesOfTheFirst(false);
        System.out.println(
                "classes that a first hand-over loads: " + with + ", without " + without);
        assertThat(with).isLessThan(without / 2);
    }

    private static int classesOfTheFirst(boolean rehearsal) throws Exception {
        var child =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "--enable-native-access=ALL-UNNAMED",
                                "-cp",
                                System.getProperty("java.class.path"),
                                RehearsalTest.class.getName(),
                                String.valueOf(rehearsal))
                        .redirectError(ProcessBuilder.Redirect.DISCARD)
                        .start();
        try (var lines = child.inputReader()) {
            var last =
                    lines.lines()
                            .filter(line -> line.startsWith("classes "))
                            .findFirst()
                            .orElseThrow();
            return Integer.parseInt(last.substring("classes ".length()));
        } finally {
            child.destroyForcibly();
            assertThat(child.waitFor(20, TimeUnit.SECONDS)).isTrue();
        }
    }

    /// The child: hands one prompt over and says how many classes that loaded.
    public static void main(String[] args) throws InterruptedException {
        var options = Map.<String, Object>of("rehearsal", false);
        if (Boolean.parseBoolean(args[0])) {
            for (boolean sameHost : new boolean[] {true, false}) {
                Rehearsal.handOff(
                        context(Map.of()),
                        MooncakeConnectorProvider::plane,
                        sameHost,
                        Deadline.in(Duration.ofMinutes(5)));
            }
        }
        var classes = ManagementFactory.getClassLoadingMXBean();
        try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", options);
                var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", options)) {
            var target = d.request("d", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            var prompt = p.request("p-1", 64, 5, decodeElsewhere("x"));
            p.compute(prompt, 9);
            long before = classes.getTotalLoadedClassCount();
            p.prefill(prompt, 9);
            var result = d.await(d.beginDecode(target, 0));
            long loaded = classes.getTotalLoadedClassCount() - before;
            if (!(result instanceof Completion.Completed)) {
                throw new AssertionError(result);
            }
            System.out.println("classes " + loaded);
        }
    }
}
