// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.AppenderBase;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.config.ConfigText;
import io.kvferry.multiconnector.config.Family;
import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.WorkerConnector;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.slf4j.LoggerFactory;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/// A served engine whose DiskConnector has an Error in a worker half, as an operator sees it.
@Timeout(240)
class DiskOffTest {
    private static final Duration LIMIT = Duration.ofSeconds(60);
    private static final Logger LOGGER = (Logger) LoggerFactory.getLogger("io.kvferry");
    private static final String DISK = "DiskConnector";
    private static final String PROMPT =
            "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.";

    @TempDir Path folder;

    /// While set, the worker half of rank 1 has an Error in each step, and none can be opened.
    private volatile boolean broken;

    private final List<String> warnings = new CopyOnWriteArrayList<>();
    private final AppenderBase<ILoggingEvent> appender =
            new AppenderBase<>() {
                @Override
                protected void append(ILoggingEvent event) {
                    if (event.getLevel().isGreaterOrEqual(Level.WARN)
                            && event.getFormattedMessage().contains(DISK)) {
                        warnings.add(event.getFormattedMessage());
                    }
                }
            };

    @BeforeEach
    void listen() {
        appender.start();
        LOGGER.addAppender(appender);
        LOGGER.setLevel(Level.WARN);
    }

    @AfterEach
    void stopListening() {
        LOGGER.detachAppender(appender);
        LOGGER.setLevel(null);
    }

    /// The model verifies every byte that it gets.
    private ServedEngine open() {
        var kvferry =
                Kvferry.open(
                        AssembledEngine.catalog(Optional.empty()),
                        AssembledEngine::log,
                        Kvferry.STAGING_BYTES);
        var json =
                """
                {"kv_connector": "DiskConnector", "kv_role": "kv_both",
                 "kv_connector_extra_config": {"path": "%s", "reserve": 0}}\
                """;
        var disk = kvferry.kv(ConfigText.of(Family.KV, json.formatted(folder.resolve("disk"))));
        var config =
                EngineConfig.of(new SyntheticProvider(), Path.of(""), Map.of("verify", "all"))
                        .host(kvferry.services())
                        .blockCount(128)
                        .worldSize(2)
                        .prefixCache(false)
                        .connectorPause(Duration.ofMillis(20))
                        .kvConnector(breakable(disk.provider()), disk.config());
        var engine = Engine.open(config);
        return new ServedEngine(
                engine,
                () -> {
                    engine.close();
                    kvferry.close();
                });
    }

    @FunctionalInterface
    private interface Call {
        Object next() throws Throwable;
    }

    @FunctionalInterface
    private interface Around {
        Object call(String method, Object[] arguments, Call call) throws Throwable;
    }

    private static <T> T around(Class<T> type, T object, Around around) {
        return type.cast(
                Proxy.newProxyInstance(
                        type.getClassLoader(),
                        new Class<?>[] {type},
                        (_, method, arguments) ->
                                around.call(
                                        method.getName(),
                                        arguments,
                                        () -> {
                                            try {
                                                return method.invoke(object, arguments);
                                            } catch (InvocationTargetException e) {
                                                throw e.getCause();
                                            }
                                        })));
    }

    /// The connector itself, with an Error out of one rank's half, whose saves have just begun.
    private KvConnectorProvider breakable(KvConnectorProvider disk) {
        return around(
                KvConnectorProvider.class,
                disk,
                (method, arguments, call) -> {
                    if (!method.equals("openWorker")) {
                        return call.next();
                    }
                    if (broken) {
                        throw new KvFerryException(ErrorCode.STORAGE_IO, "the disk is gone");
                    }
                    var half = (WorkerConnector) call.next();
                    return arguments[0].toString().contains("rank=1") ? breakable(half) : half;
                });
    }

    private WorkerConnector breakable(WorkerConnector half) {
        return around(
                WorkerConnector.class,
                half,
                (method, _, call) -> {
                    var result = call.next();
                    if (broken && method.equals("endStep")) {
                        throw new OutOfMemoryError("of the test");
                    }
                    return result;
                });
    }

    @Test
    void anErrorInAWorkerHalfIsDegradedWarnedOnceAndOpenedAgain() throws Exception {
        try (var engine = open()) {
            var expected = engine.tokens(PROMPT, 4);
            engine.awaitSaved();
            assertThat(engine.tokens(PROMPT, 4)).isEqualTo(expected);
            double delivered = delivered(engine);
            assertThat(delivered).as("tokens from the disk").isPositive();
            assertThat(health(engine)).isEqualTo("200 ok ");
            assertThat(engine.metric("kvferry_degraded", "")).isZero();

            broken = true;
            assertThat(engine.tokens("a prompt that is to be saved", 4)).hasSize(4);
            assertThat(awaitHealth(engine, "200 degraded ")).contains(DISK, "is off");
            for (int request = 0; request < 20; request++) {
                assertThat(engine.tokens(PROMPT, 4)).isEqualTo(expected);
            }
            assertThat(health(engine)).startsWith("200 degraded ").contains(DISK);
            assertThat(engine.metric("kvferry_degraded", "")).isEqualTo(1);
            assertThat(engine.metric("kvferry_connectors_given_up_total", "")).isEqualTo(1);
            assertThat(delivered(engine)).as("nothing comes from the disk").isEqualTo(delivered);
            assertThat(warnings).as("however often it could not be opened").hasSize(1);
            assertThat(warnings.getFirst()).contains("OutOfMemoryError", "is off");

            broken = false;
            assertThat(awaitHealth(engine, "200 ok ")).isEqualTo("200 ok ");
            assertThat(engine.metric("kvferry_degraded", "")).isZero();
            assertThat(engine.tokens(PROMPT, 4)).isEqualTo(expected);
            assertThat(engine.metric("kvferry_connectors_reopened_total", "")).isEqualTo(1);
            assertThat(delivered(engine)).as("tokens from the disk").isGreaterThan(delivered);
            assertThat(warnings).hasSize(2);
            assertThat(warnings.getLast()).contains("on-again");
        }
    }

    private static double delivered(ServedEngine engine) throws Exception {
        return engine.metric("kvferry_prompt_tokens_by_source_total", "source=\"connector\"");
    }

    private static String health(ServedEngine engine) throws Exception {
        var response = TestClient.get(engine.port(), "/health");
        var json = TestClient.json(response.body());
        return response.statusCode()
                + " "
                + json.path("status").asString("")
                + " "
                + json.path("reason").asString("");
    }

    /// What `/health` says once it begins so, or said last. No request is sent meanwhile.
    private static String awaitHealth(ServedEngine engine, String wanted) throws Exception {
        var health = "";
        for (var limit = Deadline.in(LIMIT); !limit.passed(); ) {
            health = health(engine);
            if (health.startsWith(wanted)) {
                return health;
            }
            TimeUnit.MILLISECONDS.sleep(10); // /health is all there is; the deadline decides
        }
        assertThat(health).startsWith(wanted);
        return health;
    }
}
