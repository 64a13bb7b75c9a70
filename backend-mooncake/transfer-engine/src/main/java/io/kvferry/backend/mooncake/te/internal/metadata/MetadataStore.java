// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.metadata;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.net.HttpExchanges;
import io.kvferry.toolkit.net.LastingHttpClient;
import io.kvferry.toolkit.secret.FleetSecret;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.Optional;

/// A key-value service that holds the documents of all nodes of a cluster.
///
/// Threading: any thread; every method blocks, at most until its deadline.
interface MetadataStore extends AutoCloseable {
    /// Bounds of Mooncake's own client.
    Duration CONNECT = Duration.ofMillis(1500);

    Duration REQUEST = Duration.ofSeconds(3);

    /// Of one answer: the largest document that a [MetadataServer] keeps, and as base64.
    int MOST_ANSWER_BYTES = 24 << 20;

    Optional<String> get(String key, Deadline deadline, Cancellation cancellation);

    void put(String key, String document, Deadline deadline);

    /// Removing a missing key is not an error.
    void remove(String key, Deadline deadline);

    @Override
    void close();

    /// The store behind a Mooncake connection string.
    ///
    /// @param secret signs requests to an HTTP server; etcd does not know it
    static MetadataStore open(String connection, Optional<FleetSecret> secret) {
        if (connection.startsWith("http://") || connection.startsWith("https://")) {
            return new HttpMetadataStore(URI.create(connection), secret);
        }
        if (connection.startsWith("etcd://")) {
            return new EtcdMetadataStore(
                    URI.create("http://" + connection.substring("etcd://".length())));
        }
        throw new KvFerryException(
                ErrorCode.BAD_CONFIG,
                "metadata = '"
                        + connection
                        + "' is neither P2PHANDSHAKE nor http://, https:// or etcd://"
                        + (connection.startsWith("redis://") ? "; redis is not supported" : ""));
    }

    static LastingHttpClient client() {
        return new LastingHttpClient(() ->
                HttpClient.newBuilder()
                        .connectTimeout(CONNECT)
                        // Not the common pool, which others may hold up.
                        .executor(HttpExchanges.threads("kvferry-te-http"))
                        .version(HttpClient.Version.HTTP_1_1)
                        .build());
    }

    /// @throws KvFerryException [ErrorCode#TIMEOUT], [ErrorCode#IO], or why it was cancelled
    static HttpResponse<String> send(
            LastingHttpClient client,
            HttpRequest.Builder request,
            URI uri,
            Deadline deadline,
            Cancellation cancellation) {
        Duration limit = deadline.earlier(Deadline.in(REQUEST)).remaining();
        if (limit.isZero()) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, "no time left to ask the metadata server " + uri);
        }
        try {
            return HttpExchanges.send(
                    client.now(),
                    request.uri(uri).timeout(limit).build(),
                    HttpResponse.BodyHandlers.limiting(
                            HttpResponse.BodyHandlers.ofString(), MOST_ANSWER_BYTES),
                    limit,
                    cancellation);
        } catch (HttpTimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, "metadata server " + uri + " did not answer in time", e);
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.IO, "metadata server " + uri + " cannot be reached: " + e, e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(
                    ErrorCode.CANCELLED, "interrupted while asking the metadata server " + uri, e);
        }
    }
}
