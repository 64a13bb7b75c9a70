// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.http.TestClient;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// Runs the command line as a user does: in a process, with its exit code and its two streams.
class CliTest {
    @TempDir Path folder;

    record Result(int code, String out, String err) {}

    private Result kvferry(String... arguments) throws IOException, InterruptedException {
        return kvferry(List.of(), arguments);
    }

    private Result kvferry(List<Path> moreClassPath, String... arguments)
            throws IOException, InterruptedException {
        var command = KvferryCommand.of(moreClassPath, arguments);
        var err = folder.resolve("stderr");
        var process = new ProcessBuilder(command).redirectError(err.toFile()).start();
        process.getOutputStream().close();
        var out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertThat(process.waitFor(30, TimeUnit.SECONDS)).isTrue();
        return new Result(process.exitValue(), out, Files.readString(err));
    }

    private static void assertOneReadableLine(Result result, String... parts) {
        assertThat(result.code()).as(result.err()).isEqualTo(ExitCode.USAGE);
        assertThat(result.err().strip().lines()).as(result.err()).hasSize(1);
        assertThat(result.err()).contains(parts).doesNotContain("Exception", "\tat ");
    }

    @Test
    void documentsItsExitCodes() throws Exception {
        var help = kvferry("--help");
        assertThat(help.code()).isZero();
        assertThat(help.out())
                .contains("serve", "route", "plugins", "doctor", "make-model", "Exit codes", "130");
        assertThat(kvferry().code()).isEqualTo(ExitCode.USAGE);
        assertThat(kvferry("srve").err()).contains("serve");
    }

    @Test
    void refusesATypoInTheConnectorConfig() throws Exception {
        assertOneReadableLine(
                kvferry(
                        "serve",
                        "--runner",
                        "llama",
                        "--kv-transfer-config",
                        "{\"kv_conector\": \"DiskConnector\"}"),
                "--kv-transfer-config",
                "kv_conector",
                "did you mean \"kv_connector\"?");
    }

    @Test
    void refusesAnUnknownConnector() throws Exception {
        assertOneReadableLine(
                kvferry(
                        "serve",
                        "--runner",
                        "llama",
                        "--kv-transfer-config",
                        "{\"kv_connector\": \"DiscConnector\", \"kv_role\": \"kv_both\"}"),
                "DiscConnector",
                "Found:");
    }

    /// Typos, wrong types and wrong roles at every level: each says where and what to write.
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '"',
            value = {
                "'kv_role': 'producer', 'kv_connector': 'DiskConnector' | kv_role | kv_producer",
                "'kv_role': 3, 'kv_connector': 'DiskConnector' | kv_role | expected",
                "'kv_role': 'kv_both', 'kv_connector': 'DiskConnector', 'kv_port': 'x' | kv_port | whole number",
                "'kv_role': 'kv_both', 'kv_connector': 'DiskConnector', 'kv_connector_extra_config':"
                        + " {'shared_storage_pth': '/x'} | of DiskConnector | did you mean",
                "'kv_role': 'kv_both', 'kv_connector': 'MultiConnector', 'kv_connector_extra_config':"
                        + " {'connectors': [{'kv_conector': 'DiskConnector'}]} | connectors[0] | did you mean",
                "'kv_role': 'kv_both', 'kv_connector': 'MultiConnector', 'kv_connector_extra_config':"
                        + " {'connectors': [{'kv_connector': 'Disk'}]} | MultiConnector/Disk | Found:",
                "'kv_role': 'kv_both', 'kv_connector': 'DiskConnector' 'x' | --kv-transfer-config | line 1",
            })
    void refusesAMistakeInTheConnectorConfig(String json, String where, String what)
            throws Exception {
        assertOneReadableLine(
                kvferry(
                        "serve",
                        "--runner",
                        "llama",
                        "--kv-transfer-config",
                        "{" + json.replace('\'', '"') + "}"),
                where,
                what);
    }

    @Test
    void refusesAnUnknownEncoderConnector() throws Exception {
        assertOneReadableLine(
                kvferry(
                        "serve",
                        "--runner",
                        "synthetic",
                        "--ec-transfer-config",
                        "{\"ec_connector\": \"ECNoConnector\", \"ec_role\": \"ec_both\"}"),
                "ECNoConnector",
                "Found:");
    }

    @Test
    void refusesRanksThatTheModelCannotBeSplitOver() throws Exception {
        assertOneReadableLine(
                kvferry("serve", "--runner", "synthetic", "--tp", "3"), "KV heads", "3 ranks");
    }

    @Test
    void refusesAnUnknownRunner() throws Exception {
        assertOneReadableLine(kvferry("serve", "--runner", "lama"), "lama", "llama");
    }

    @Test
    void refusesBrokenJsonAndMissingFiles() throws Exception {
        assertOneReadableLine(
                kvferry("serve", "--runner-options", "{"), "--runner-options", "JSON");
        assertOneReadableLine(
                kvferry("serve", "--runner", "llama", "--kv-transfer-config", "@/no/such/file"),
                "/no/such/file");
        assertOneReadableLine(
                kvferry("serve", "--runner", "llama", "--model", "/no/such/model"),
                "/no/such/model");
    }

    @Test
    void namesTheFileThatAConfigCameFrom() throws Exception {
        assertOneReadableLine(
                kvferry("serve", "--kv-transfer-config", "@" + folder),
                "--kv-transfer-config: cannot read " + folder,
                "it is a folder");
        Path file = Files.writeString(folder.resolve("kv.json"), "{\"kv_conector\": \"x\"}");
        assertOneReadableLine(
                kvferry("serve", "--runner", "llama", "--kv-transfer-config", "@" + file),
                "--kv-transfer-config @" + file + ": unknown key",
                "did you mean");
        Files.writeString(file, "{");
        assertOneReadableLine(
                kvferry("serve", "--runner", "llama", "--ec-transfer-config", "@" + file),
                "--ec-transfer-config @" + file + ": not a JSON object at line 1");
        assertOneReadableLine(
                kvferry("serve", "--runner-options", "@" + file),
                "--runner-options @" + file + ": not valid JSON: ");
    }

    @Test
    void refusesARouterWithoutBootstrapServers() throws Exception {
        assertOneReadableLine(
                kvferry(
                        "route",
                        "--prefill",
                        "http://x",
                        "--decode",
                        "http://y",
                        "--hand-off",
                        "mooncake"),
                "--bootstrap");
    }

    @Test
    void listsPluginsWithTheirOptions() throws Exception {
        var result = kvferry("plugins", "--json");
        assertThat(result.code()).as(result.err()).isZero();
        var runners = TestClient.json(result.out()).path("model_runners");
        assertThat(runners.findValuesAsString("name")).contains("llama", "jlama");
        assertThat(kvferry("plugins", "llama").out()).contains("llama", "in ");
        assertThat(kvferry("plugins", "nothing").code()).isEqualTo(ExitCode.USAGE);
    }

    @Test
    void examinesTheMachine() throws Exception {
        var result = kvferry("doctor", "--json", "--folder", folder.toString());
        assertThat(result.code()).as(result.err()).isZero();
        assertThat(result.out())
                .contains("Java 25", "/dev/shm", "cross memory attach", "O_DIRECT", "\"remedy\"");
        try (var left = Files.list(folder)) {
            assertThat(left.map(path -> String.valueOf(path.getFileName()))).containsOnly("stderr");
        }
    }

    @Test
    void makesAModelOnce() throws Exception {
        var model = folder.resolve("model").toString();
        assertThat(kvferry("make-model", model).code()).isZero();
        assertThat(Path.of(model, "config.json")).exists();
        assertOneReadableLine(kvferry("make-model", model), "exists");
    }
}
