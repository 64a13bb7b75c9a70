// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.cli.KvferryCommand;
import io.kvferry.serving.http.TestClient;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.ProcessBuilder.Redirect;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/// The key of the API comes from the environment, where other users of the host do not see it.
@Timeout(300) // a virtual machine has to start
class ApiKeyTest {
    private static int get(HttpClient client, int port, String... headers) throws Exception {
        var request = HttpRequest.newBuilder(TestClient.uri(port, "/v1/models"));
        for (int i = 0; i < headers.length; i += 2) {
            request.header(headers[i], headers[i + 1]);
        }
        return client.send(request.build(), BodyHandlers.discarding()).statusCode();
    }

    @Test
    void isReadFromTheEnvironment() throws Exception {
        var command =
                KvferryCommand.of(
                        List.of(),
                        List.of("-Xmx256m"),
                        "serve",
                        "--runner",
                        "synthetic",
                        "--blocks",
                        "64",
                        "--port",
                        "0",
                        "--json",
                        "--stop-with-stdin");
        var builder = new ProcessBuilder(command).redirectError(Redirect.DISCARD);
        builder.environment().put("KVFERRY_API_KEY", "from-the-environment");
        var process = builder.start();
        try (var client = HttpClient.newHttpClient();
                var lines =
                        new BufferedReader(
                                new InputStreamReader(
                                        process.getInputStream(), StandardCharsets.UTF_8))) {
            var ready =
                    CompletableFuture.supplyAsync(() ->
                                    lines.lines()
                                            .filter(line -> line.startsWith("{"))
                                            .findFirst()
                                            .orElse("{}"))
                            .get(150, TimeUnit.SECONDS);
            var url = TestClient.json(ready).path("url").asString();
            assertThat(url).as("the line that says where it is").isNotEmpty();
            int port = Integer.parseInt(url.substring(url.lastIndexOf(':') + 1));
            assertThat(get(client, port)).isEqualTo(401);
            assertThat(get(client, port, "Authorization", "Bearer other")).isEqualTo(401);
            assertThat(get(client, port, "Authorization", "Bearer from-the-environment"))
                    .isEqualTo(200);
            process.getOutputStream().close();
            assertThat(process.waitFor(90, TimeUnit.SECONDS)).isTrue();
        } finally {
            process.destroyForcibly();
        }
    }
}
