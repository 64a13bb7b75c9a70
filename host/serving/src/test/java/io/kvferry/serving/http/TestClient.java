// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import tools.jackson.databind.JsonNode;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;

/// Plain requests to loopback services.
public final class TestClient {
    private static final HttpClient CLIENT =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    private TestClient() {}

    public static HttpService.Settings loopback() {
        return loopback(64);
    }

    public static HttpService.Settings loopback(int concurrent) {
        return loopback(concurrent, 10_000);
    }

    public static HttpService.Settings loopback(int concurrent, int maxBodyBytes) {
        return new HttpService.Settings(
                new InetSocketAddress(InetAddress.getLoopbackAddress(), 0),
                maxBodyBytes,
                concurrent,
                Duration.ofSeconds(2));
    }

    public static URI uri(int port, String path) {
        return URI.create("http://127.0.0.1:" + port + path);
    }

    public static HttpResponse<String> post(int port, String path, String json, String... headers)
            throws Exception {
        return CLIENT.send(request(port, path, json, headers), BodyHandlers.ofString());
    }

    /// A request over a connection of its own. One that rested may be closed by the server at the
    /// moment when the next request is sent on it, and a POST is not sent again.
    public static HttpResponse<String> postAlone(int port, String path, String json)
            throws Exception {
        try (var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build()) {
            return client.send(request(port, path, json), BodyHandlers.ofString());
        }
    }

    public static HttpRequest request(int port, String path, String json, String... headers) {
        var request =
                HttpRequest.newBuilder(uri(port, path))
                        .timeout(Duration.ofSeconds(120))
                        .header("Content-Type", "application/json")
                        .POST(HttpRequest.BodyPublishers.ofString(json));
        if (headers.length > 0) {
            request.headers(headers);
        }
        return request.build();
    }

    public static HttpResponse<String> get(int port, String path) throws Exception {
        return CLIENT.send(
                HttpRequest.newBuilder(uri(port, path)).build(), BodyHandlers.ofString());
    }

    public static JsonNode json(String text) {
        return Json.parseObject(text.getBytes(StandardCharsets.UTF_8));
    }

    /// The data of each event of a stream.
    public static List<String> events(String body) {
        return body.lines()
                .filter(line -> line.startsWith("data: "))
                .map(line -> line.substring(6))
                .toList();
    }

    /// A request on a bare socket, which the caller may close at any time.
    public static Socket open(int port, String path, String json) throws IOException {
        var socket = new Socket(InetAddress.getLoopbackAddress(), port);
        var body = json.getBytes(StandardCharsets.UTF_8);
        var head =
                "POST "
                        + path
                        + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                        + body.length
                        + "\r\n\r\n";
        socket.getOutputStream().write(head.getBytes(StandardCharsets.UTF_8));
        socket.getOutputStream().write(body);
        socket.getOutputStream().flush();
        return socket;
    }
}
