// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.metadata;

import io.kvferry.backend.mooncake.te.internal.WireJson;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.net.LastingHttpClient;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Optional;

/// etcd v3 through its JSON gateway (`/v3/kv/...`), with keys and documents as a native node writes
/// them.
public final class EtcdMetadataStore implements MetadataStore {
    private final URI base;
    private final LastingHttpClient client = MetadataStore.client();

    public EtcdMetadataStore(URI base) {
        this.base = base;
    }

    @Override
    public Optional<String> get(String key, Deadline deadline, Cancellation cancellation) {
        JsonNode found =
                call("range", WireJson.object().put("key", base64(key)), deadline, cancellation)
                        .path("kvs")
                        .path(0);
        if (found.isMissingNode()) {
            return Optional.empty();
        }
        String value = found.has("value") ? WireJson.text(found, "value", "etcd reply") : "";
        return Optional.of(new String(Base64.getDecoder().decode(value), StandardCharsets.UTF_8));
    }

    @Override
    public void put(String key, String document, Deadline deadline) {
        var _ =
                call(
                        "put",
                        WireJson.object().put("key", base64(key)).put("value", base64(document)),
                        deadline,
                        new Cancellation());
    }

    @Override
    public void remove(String key, Deadline deadline) {
        var _ =
                call(
                        "deleterange",
                        WireJson.object().put("key", base64(key)),
                        deadline,
                        new Cancellation());
    }

    private JsonNode call(
            String verb, ObjectNode body, Deadline deadline, Cancellation cancellation) {
        URI uri = base.resolve("/v3/kv/" + verb);
        HttpResponse<String> response =
                MetadataStore.send(
                        client,
                        HttpRequest.newBuilder().POST(BodyPublishers.ofString(body.toString())),
                        uri,
                        deadline,
                        cancellation);
        if (response.statusCode() != 200) {
            throw new KvFerryException(
                    ErrorCode.PEER_REFUSED,
                    "etcd %s answered %d %s"
                            .formatted(uri, response.statusCode(), response.body()));
        }
        return WireJson.objectOf(WireJson.parse(response.body(), "etcd reply"), "etcd reply");
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public void close() {
        client.close();
    }
}
