// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.metadata;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.Optional;

/// Mooncake's HTTP metadata server: GET, PUT and DELETE of `<uri>?key=<percent-encoded key>`; 200
/// alone is success.
public final class HttpMetadataStore implements MetadataStore {
    private final URI base;
    private final HttpClient client = MetadataStore.client();

    public HttpMetadataStore(URI base) {
        this.base = base;
    }

    @Override
    public Optional<String> get(String key, Deadline deadline) {
        HttpResponse<String> response =
                MetadataStore.send(client, HttpRequest.newBuilder().GET(), uri(key), deadline);
        return switch (response.statusCode()) {
            case 200 -> Optional.of(response.body());
            case 404 -> Optional.empty();
            default -> throw refused("GET", key, response.statusCode(), response.body());
        };
    }

    @Override
    public void put(String key, String document, Deadline deadline) {
        var request =
                HttpRequest.newBuilder()
                        .header("Content-Type", "application/json")
                        .PUT(BodyPublishers.ofString(document));
        HttpResponse<String> response = MetadataStore.send(client, request, uri(key), deadline);
        if (response.statusCode() != 200) {
            throw refused("PUT", key, response.statusCode(), response.body());
        }
    }

    @Override
    public void remove(String key, Deadline deadline) {
        HttpResponse<String> response =
                MetadataStore.send(client, HttpRequest.newBuilder().DELETE(), uri(key), deadline);
        if (response.statusCode() != 200 && response.statusCode() != 404) {
            throw refused("DELETE", key, response.statusCode(), response.body());
        }
    }

    private URI uri(String key) {
        String encoded = URLEncoder.encode(key, StandardCharsets.UTF_8).replace("+", "%20");
        return URI.create(base + "?key=" + encoded);
    }

    private KvFerryException refused(String verb, String key, int status, String body) {
        return new KvFerryException(
                ErrorCode.PEER_REFUSED,
                "metadata server %s: %s %s answered %d %s"
                        .formatted(
                                base,
                                verb,
                                key,
                                status,
                                body.substring(0, Math.min(200, body.length()))));
    }

    @Override
    public void close() {
        client.shutdownNow();
    }
}
