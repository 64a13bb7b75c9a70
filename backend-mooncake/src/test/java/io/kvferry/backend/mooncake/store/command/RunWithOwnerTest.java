// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.remote.OwnerChild;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.IntFunction;

/// A command beside an owner, both as real processes.
class RunWithOwnerTest {
    @TempDir Path folder;

    private final StringWriter said = new StringWriter();
    private final List<Integer> ports = new CopyOnWriteArrayList<>();
    private Optional<String> master = Optional.empty();

    private RunWithOwner runner(IntFunction<List<String>> owner) {
        return new RunWithOwner(
                port -> {
                    ports.add(port);
                    return owner.apply(port);
                },
                folder.resolve("owner.log"),
                Duration.ofSeconds(120),
                master,
                Map.of("MOONCAKE_DEVICE", "mlx5_1"),
                new PrintWriter(said, true));
    }

    private static List<String> owner(int port) {
        return OwnerChild.command(port, 1 << 20);
    }

    private static List<String> sh(String script) {
        return List.of("sh", "-c", script, "sh");
    }

    @Test
    void theCommandIsToldWhereTheStoreIsAndHowToUseIt() throws Exception {
        var out = folder.resolve("out");
        try (var runner = runner(RunWithOwnerTest::owner)) {
            int code =
                    runner.run(
                            sh(
                                    "[ \"$MOONCAKE_DEVICE\" = mlx5_1 ] || exit 1; echo"
                                            + " \"$MOONCAKE_PREFERRED_SEGMENT $MOONCAKE_MASTER\" > "
                                            + out
                                            + "; for word in \"$@\"; do echo \"$word\" >> "
                                            + out
                                            + "; done; exit 7"));
            assertThat(code).isEqualTo(7);
        }
        var lines = Files.readAllLines(out);
        assertThat(lines.getFirst()).matches("(127\\.0\\.0\\.1:\\d+) \\1");
        assertThat(lines.subList(1, lines.size()))
                .containsExactly(
                        "--kv-transfer-config",
                        "{\"kv_connector\":\"MooncakeStoreConnector\",\"kv_role\":\"kv_both\","
                                + "\"kv_connector_extra_config\":{\"load_async\":true,"
                                + "\"enable_cross_layers_blocks\":true}}");
        assertThat(said.toString()).contains("Mooncake preferred segment: 127.0.0.1:");
    }

    @Test
    void aConfigurationOfItsOwnIsLeftAlone() {
        var err = new PrintWriter(said, true);
        for (var words :
                List.of(
                        List.of("serve", "--kv-transfer-config", "{}"),
                        List.of("serve", "--kv-transfer-config={}"))) {
            assertThat(RunWithOwner.withConfig(words, err)).isEqualTo(words);
        }
        assertThat(said.toString())
                .contains(
                        "Wrapped command already has --kv-transfer-config; skipping wrapper"
                                + " auto-inject.");
        assertThat(RunWithOwner.withConfig(List.of("serve", "--kv-transfer-configs"), err))
                .hasSize(4);
    }

    @Test
    void anOwnerThatDiesIsReplacedOnItsPort() throws Exception {
        var pid = folder.resolve("pid");
        try (var runner =
                runner(port ->
                        sh(
                                "echo $$ > "
                                        + pid
                                        + "; exec "
                                        + String.join(
                                                " ",
                                                OwnerChild.command(port, 1 << 20).stream()
                                                        .map(word -> "'" + word + "'")
                                                        .toList())))) {
            // Kills the owner, and ends when another one has been started.
            int code =
                    runner.run(
                            sh(
                                    "old=$(cat "
                                            + pid
                                            + "); kill -9 $old; i=0; while [ $i -lt 1000 ]; do"
                                            + " [ \"$(cat "
                                            + pid
                                            + ")\" != $old ] && exit 0;"
                                            + " sleep 0.1; i=$((i+1)); done; exit 1"));
            assertThat(code).isZero();
        }
        assertThat(said.toString()).contains("another one is started");
        assertThat(ports.size()).isGreaterThanOrEqualTo(2);
        assertThat(ports.getFirst()).isZero();
        assertThat(ports.subList(1, ports.size())).allMatch(port -> port > 0);
    }

    @Test
    void whatAJvmPrintsBeforeTheAddressIsNotTakenForIt() throws Exception {
        IntFunction<List<String>> owner =
                _ ->
                        sh(
                                "echo '[0.004s][warning][os] something';"
                                        + " echo '{\"address\": \"127.0.0.1:7\"}'; exec sleep 200");
        try (var runner = runner(owner)) {
            assertThat(runner.run(sh("[ \"$MOONCAKE_MASTER\" = 127.0.0.1:7 ] || exit 1"))).isZero();
        }
    }

    @Test
    void withAMasterTheCommandUsesAllItsOwnersAndPrefersItsOwn() throws Exception {
        master = Optional.of("master://127.0.0.1:9");
        IntFunction<List<String>> owner =
                _ -> sh("echo '{\"address\": \"127.0.0.1:7\"}'; exec sleep 200");
        try (var runner = runner(owner)) {
            assertThat(
                            runner.run(
                                    sh(
                                            "[ \"$MOONCAKE_MASTER\" = master://127.0.0.1:9 ] &&"
                                                    + " [ \"$MOONCAKE_PREFERRED_SEGMENT\" ="
                                                    + " 127.0.0.1:7 ] || exit 1")))
                    .isZero();
        }
    }

    @Test
    void anOwnerThatDoesNotStartIsNamedWithItsLog() {
        try (var runner = runner(_ -> sh("echo no memory here >&2; exit 1"))) {
            assertThatThrownBy(() -> runner.run(List.of("true")))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("Mooncake owner exited before becoming ready.")
                    .hasMessageContaining("no memory here");
        }
    }
}
