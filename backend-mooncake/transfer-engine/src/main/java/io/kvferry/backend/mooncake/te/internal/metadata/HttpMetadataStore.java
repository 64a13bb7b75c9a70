// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.metadata;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.net.LastingHttpClient;
import io.kvferry.toolkit.secret.FleetSecret;
import io.kvferry.toolkit.secret.HttpSignature;

import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.Optional;

/// Mooncake's HTTP metadata server: GET, PUT and DELETE of `<uri>?key=<percent-encoded key>`; 200
/// alone is success.
public final class HttpMetadataStore implements MetadataStore {
    private final URI base;
    private final Optional<FleetSecret> secret;
    private final LastingHttpClient client = MetadataStore.client();

    /// @param secret signs each request where there is one
    public HttpMetadataStore(URI base, Optional<FleetSecret> secret) {
        this.base = base;
        this.secret = secret;
    }

    @Override
    public Optional<String> get(String key, Deadline deadline, Cancellation cancellation) {
        HttpResponse<String> response =
                send(HttpRequest.newBuilder().GET(), "GET", key, "", deadline, cancellation);
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
        HttpResponse<String> response =
                send(request, "PUT", key, document, deadline, new Cancellation());
        if (response.statusCode() != 200) {
            throw refused("PUT", key, response.statusCode(), response.body());
        }
    }

    @Override
    public void remove(String key, Deadline deadline) {
        HttpResponse<String> response =
                send(
                        HttpRequest.newBuilder().DELETE(),
                        "DELETE",
                        key,
                        "",
                        deadline,
                        new Cancellation());
        if (response.statusCode() != 200 && response.statusCode() != 404) {
            throw refused("DELETE", key, response.statusCode(), response.body());
        }
    }

    private HttpResponse<String> send(
            HttpRequest.Builder request,
            String method,
            String key,
            String body,
            Deadline deadline,
            Cancellation cancellation) {
        var uri = uri(key);
        secret.ifPresent(known ->
                request.header(
                        HttpSignature.HEADER,
                        HttpSignature.sign(
                                known,
                                method,
                                uri.getRawPath() + "?" + uri.getRawQuery(),
                                body.getBytes(StandardCharsets.UTF_8))));
        return MetadataStore.send(client, request, uri, deadline, cancellation);
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
        client.close();
    }
}
