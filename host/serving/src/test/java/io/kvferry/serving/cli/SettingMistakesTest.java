// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/// Settings that are wrong, alone or together: one line that says what, where and how to mend it,
/// and the exit code of wrong usage.
class SettingMistakesTest {
    @TempDir Path folder;

    static Stream<Arguments> mistakes() {
        return Stream.of(
                disk(
                        "low_watermark 0.99",
                        "high_watermark 0.98",
                        "\"low_watermark\": 0.99, \"high_watermark\": 0.98"),
                disk(
                        "low_watermark 0.8",
                        "high_watermark 0.5",
                        "\"low_watermark\": 0.8, \"high_watermark\": 0.5"),
                disk("lease", "us, ms, s, m, min, h", "\"lease\": \"5 parsecs\""),
                disk("lease", "outside", "\"lease\": \"0s\""),
                disk("capacity", "GiB", "\"capacity\": \"-5\""),
                serve("--port must be", "70000", "--port", "70000"),
                serve("--port must be", "-1", "--port", "-1"),
                serve("--admin-port must be", "99999", "--admin-port", "99999"),
                serve("--admin-port", "different", "--port", "9", "--admin-port", "9"),
                serve("--request-timeout", "at least 1", "--request-timeout", "0"),
                serve("--stop-grace", "at least 0", "--stop-grace", "-1"),
                serve("--max-concurrent", "at least 1", "--max-concurrent", "0"),
                serve("2 KV heads", "3 ranks", "--tp", "3"),
                serve("worldSize", "64", "--tp", "65"),
                serve("--blocks", "bytes", "--blocks", "2000000000"),
                serve("--data-parallel-rank", "at least 0", "--data-parallel-rank", "-1"),
                serve("--staging-pool", "GiB", "--staging-pool", "some"),
                serve("--staging-pool", "outside", "--staging-pool", "1KiB"),
                serve("--ssl-certfile", "--ssl-keyfile", "--ssl-certfile", "/nowhere"),
                serve(
                        "kv_ip",
                        "not a known address",
                        "--kv-transfer-config",
                        "{\"kv_connector\": \"MooncakeConnector\", \"kv_role\": \"kv_producer\", \"kv_ip\": \"1.2.3.4.5\"}"),
                serve("'abc' is not an int", "serve --help", "--port", "abc"),
                serve("--prot", "did you mean --port", "--prot", "1"),
                serve("192.0.2.1", "--host an address of this machine", "--host", "192.0.2.1"),
                serve(
                        "kv_ip (or bind_host) 192.0.2.1",
                        "one of this host's addresses",
                        "--kv-transfer-config",
                        "{\"kv_connector\": \"MooncakeConnector\", \"kv_role\": \"kv_producer\", \"kv_ip\": \"192.0.2.1\"}"),
                serve(
                        "engine=native needs libtransfer_engine.so",
                        "'library'",
                        "--kv-transfer-config",
                        "{\"kv_connector\": \"MooncakeConnector\", \"kv_role\": \"kv_producer\", \"kv_connector_extra_config\": {\"engine\": \"native\"}}"),
                serve(
                        "cannot make folder /dev/null/kv of a store",
                        "name another folder",
                        "--kv-transfer-config",
                        "{\"kv_connector\": \"DiskConnector\", \"kv_role\": \"kv_both\", \"kv_connector_extra_config\": {\"path\": \"/dev/null/kv\"}}"),
                serve(
                        "no memory for segment",
                        "global_segment_size",
                        "--kv-transfer-config",
                        "{\"kv_connector\": \"MooncakeStoreConnector\", \"kv_role\": \"kv_both\", \"kv_connector_extra_config\": {\"global_segment_size\": \"900TB\"}}"),
                Arguments.of(
                        "kvferry owner: options: http_port",
                        "outside 0 to 65535",
                        List.of("owner", "--http-port", "70000")),
                Arguments.of(
                        "the store at 127.0.0.1:1 does not answer",
                        "kvferry owner",
                        List.of("store", "ls", "--store", "127.0.0.1:1")),
                Arguments.of(
                        "the master at 127.0.0.1:1 does not answer",
                        "kvferry master",
                        List.of("store", "ls", "--store", "master://127.0.0.1:1")),
                Arguments.of(
                        "no plugin is called MooncakeConector",
                        "did you mean MooncakeConnector",
                        List.of("plugins", "MooncakeConector")),
                Arguments.of("'srve'", "did you mean serve", List.of("srve")),
                route("--max-attempts", "at least 1", "--max-attempts", "0"),
                route("--idle-timeout", "at least 1", "--idle-timeout", "0"),
                route("--decode", "http://10.0.0.7:8000", "--decode", "localhost:8000"),
                route("--decode", "ftp://a", "--decode", "ftp://a"),
                route("--bootstrap", "mooncake", "--bootstrap", "http://a"),
                route("--bootstrap per --prefill", "got 0 for 1", "--hand-off", "mooncake"));
    }

    private static Arguments disk(String what, String how, String options) {
        return Arguments.of(
                what,
                how,
                List.of(
                        "serve",
                        "--runner",
                        "synthetic",
                        "--kv-transfer-config",
                        "{\"kv_connector\": \"DiskConnector\", \"kv_role\": \"kv_both\", \"kv_connector_extra_config\": {\"path\": \"FOLDER\", "
                                + options
                                + "}}"));
    }

    private static Arguments serve(String what, String how, String... options) {
        var all = new ArrayList<>(List.of("serve", "--runner", "synthetic"));
        all.addAll(List.of(options));
        return Arguments.of(what, how, all);
    }

    private static Arguments route(String what, String how, String... options) {
        var all = new ArrayList<>(List.of("route", "--prefill", "http://127.0.0.1:1"));
        if (!List.of(options).contains("--decode")) {
            all.addAll(List.of("--decode", "http://127.0.0.1:1"));
        }
        all.addAll(List.of(options));
        return Arguments.of(what, how, all);
    }

    @ParameterizedTest
    @MethodSource("mistakes")
    void isNamedWithItsMending(String what, String how, List<String> arguments) throws Exception {
        var given = new ArrayList<>(arguments);
        boolean server = List.of("serve", "route", "owner").contains(given.getFirst());
        if (server && !given.contains("--port")) {
            given.addAll(List.of("--port", "0"));
        }
        given.replaceAll(text -> text.replace("FOLDER", folder.toString()));
        var err = new StringWriter();
        try (var contributed = ContributedCommands.find(given)) {
            var ran =
                    CompletableFuture.supplyAsync(
                            () ->
                                    Main.commandLine(contributed)
                                            .setErr(new PrintWriter(err))
                                            .execute(given.toArray(String[]::new)),
                            command -> Thread.ofPlatform().daemon().start(command));
            int code = ran.get(30, TimeUnit.SECONDS); // what is accepted serves for ever
            assertThat(err.toString()).contains(what, how).doesNotContain("Exception", "defect");
            assertThat(err.toString().strip().lines()).hasSize(1);
            assertThat(code).as(err.toString()).isIn(ExitCode.USAGE, ExitCode.FAILED);
        }
    }

    @Test
    void aTakenPortIsNamedBeforeTheModelIsRead() throws Exception {
        try (var taken = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            isNamedWithItsMending(
                    "cannot listen on",
                    "choose another --port",
                    List.of(
                            "serve",
                            "--model",
                            folder.resolve("none").toString(),
                            "--port",
                            Integer.toString(taken.getLocalPort())));
        }
    }
}
