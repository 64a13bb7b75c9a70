// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HttpExchanges;
import io.kvferry.toolkit.net.LastingHttpClient;

import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongFunction;
import java.util.regex.Pattern;

/// Looks into a Mooncake cluster without Mooncake's library: the master's admin port says where an
/// object is, and the transfer engine reads it there over TCP.
///
/// No lease is taken: an object can be evicted while it is read. So its place is looked up again
/// afterwards, and the checksum of what [ClusterStore] put is verified; the bytes of others may be
/// wrong all the same.
///
/// Threading: one thread at a time.
public final class ClusterReader implements AutoCloseable {
    /// What stands in a URL as it is. The master does not decode what is escaped.
    private static final Pattern SENDABLE = Pattern.compile("[A-Za-z0-9@:/._~!$'()*;=?-]+");

    private static final int KEYS_OF_A_QUESTION = 64;
    private static final long MOST_BYTES = 64L << 30;

    /// Of the answer to a question.
    static final long MOST_ANSWER_BYTES = 16L << 20;

    private final URI admin;
    private final Duration limit;
    private final JsonMapper json = JsonMapper.builder().build();
    private final LastingHttpClient http;

    /// A copy of an object in memory.
    ///
    /// @param endpoint of the transfer engine that has it
    /// @param address there
    private record Place(String endpoint, String protocol, long address, long bytes) {}

    /// An object.
    ///
    /// @param bytes of its first copy, 0 when none is in memory
    /// @param copies places in memory
    /// @param onDisk whether it is on a disk, too
    public record Found(String key, long bytes, int copies, boolean onDisk) {
        /// `memory`, `disk`, `memory+disk`.
        public String tiers() {
            if (copies == 0) {
                return "disk";
            }
            return onDisk ? "memory+disk" : "memory";
        }
    }

    /// @param admin `http://host:port` of the master's admin port, 9003 by default
    /// @param limit for one question, and for the bytes of one object
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] for an address that is none
    public ClusterReader(String admin, Duration limit) {
        try {
            this.admin = URI.create(admin);
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, admin + " is no address of a master's admin port", e);
        }
        if (!"http".equals(this.admin.getScheme()) || this.admin.getHost() == null) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, admin + " is no address of a master's admin port");
        }
        this.limit = limit;
        this.http =
                new LastingHttpClient(() ->
                        HttpClient.newBuilder()
                                .version(HttpClient.Version.HTTP_1_1)
                                .connectTimeout(limit)
                                .executor(HttpExchanges.threads("kvferry-mooncake-admin-http"))
                                .build());
    }

    /// Objects whose keys begin so, as far as the admin port can be asked for them.
    ///
    /// @param most how many
    /// @throws KvFerryException [ErrorCode#PEER_LOST] when the master cannot be reached,
    ///   [ErrorCode#TIMEOUT] when its answer is not whole in time, [ErrorCode#IO] when it breaks
    ///   off or is too long, [ErrorCode#PROTOCOL] when it is another one
    public List<Found> list(String beginning, int most) {
        List<String> keys =
                ask(
                                "/get_all_keys",
                                _ ->
                                        new KeyLines(
                                                key ->
                                                        key.startsWith(beginning)
                                                                && SENDABLE.matcher(key).matches(),
                                                most))
                        .body();
        var found = new ArrayList<Found>();
        for (int from = 0; from < keys.size(); from += KEYS_OF_A_QUESTION) {
            var part = keys.subList(from, Math.min(keys.size(), from + KEYS_OF_A_QUESTION));
            JsonNode data = query(part);
            for (String key : part) {
                found(key, data.path(key)).ifPresent(found::add);
            }
        }
        return found;
    }

    /// The object of a key; empty where there is none.
    ///
    /// @throws KvFerryException as [#list]; [ErrorCode#UNSUPPORTED] for a key that the admin port
    ///   cannot be asked for
    public Optional<Found> find(String key) {
        return found(key, query(List.of(key)).path(key));
    }

    private static Optional<Found> found(String key, JsonNode entry) {
        if (!entry.path("ok").asBoolean(false)) {
            return Optional.empty();
        }
        List<Place> places = places(entry);
        boolean disk =
                entry.path("disk_values").size() + entry.path("local_disk_values").size() > 0;
        return Optional.of(
                new Found(
                        key,
                        places.isEmpty() ? 0 : places.getFirst().bytes(),
                        places.size(),
                        disk));
    }

    private static List<Place> places(JsonNode entry) {
        var places = new ArrayList<Place>();
        for (JsonNode value : entry.path("values")) {
            places.add(
                    new Place(
                            value.path("transport_endpoint_").asString(""),
                            value.path("protocol_").asString(""),
                            value.path("buffer_address_").asLong(0),
                            value.path("size_").asLong(0)));
        }
        return places;
    }

    /// Reads an object; of what [ClusterStore] put, the value without what stands behind it.
    ///
    /// @param memory gives memory of a size
    /// @return the bytes, in that memory
    /// @throws KvFerryException [ErrorCode#MISS] when it is not in memory, or was moved or evicted
    ///   meanwhile; [ErrorCode#CORRUPT]; [ErrorCode#UNSUPPORTED] when it is not reached over TCP;
    ///   what the transfer says
    public MemorySegment read(String key, LongFunction<MemorySegment> memory) {
        List<Place> places = places(query(List.of(key)).path(key));
        if (places.isEmpty()) {
            throw new KvFerryException(ErrorCode.MISS, "no copy of " + key + " is in memory");
        }
        Place place = places.getFirst();
        if (!place.protocol.equals("tcp")) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    key
                            + " is reached by "
                            + place.protocol
                            + ", and tcp is what can be read here");
        }
        if (place.bytes <= 0 || place.bytes > MOST_BYTES) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, key + " is said to have " + place.bytes + " bytes");
        }
        MemorySegment bytes = memory.apply(place.bytes);
        try (var engine = JavaTransferEngine.start(EngineConfig.from(Map.of()));
                var _ = engine.register(bytes)) {
            var request =
                    EngineRequest.read(
                            place.endpoint,
                            Ranges.of(bytes.address(), place.address, place.bytes),
                            Deadline.in(limit));
            if (engine.transfer(request) instanceof EngineOutcome.Failed failed) {
                throw new KvFerryException(
                        failed.failure().code(),
                        key
                                + " was not read from "
                                + place.endpoint
                                + ": "
                                + failed.failure().message());
            }
        }
        if (!places(query(List.of(key)).path(key)).contains(place)) {
            throw new KvFerryException(
                    ErrorCode.MISS, key + " was moved or evicted while it was read");
        }
        return value(key, bytes);
    }

    private static MemorySegment value(String key, MemorySegment bytes) {
        long length = bytes.byteSize() - ValueTrailer.BYTES;
        if (length < 0 || !ValueTrailer.isOne(bytes, length)) {
            return bytes; // another's
        }
        if (!ValueTrailer.matches(bytes, length, ValueTrailer.checksum(key, bytes, length))) {
            throw new KvFerryException(
                    ErrorCode.CORRUPT, "the bytes of " + key + " are not those that were put");
        }
        return bytes.asSlice(0, length);
    }

    private JsonNode query(List<String> keys) {
        for (String key : keys) {
            if (!SENDABLE.matcher(key).matches()) {
                throw new KvFerryException(
                        ErrorCode.UNSUPPORTED,
                        "the master's admin port cannot be asked for the key " + key);
            }
        }
        var answer =
                ask(
                        "/batch_query_keys?keys=" + String.join(",", keys),
                        BodyHandlers.limiting(BodyHandlers.ofString(), MOST_ANSWER_BYTES));
        try {
            return json.readTree(answer.body()).path("data");
        } catch (JacksonException e) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, admin + " answers no JSON: " + e.getOriginalMessage(), e);
        }
    }

    private <T> HttpResponse<T> ask(String question, BodyHandler<T> body) {
        var request = HttpRequest.newBuilder(admin.resolve(question)).timeout(limit).build();
        try {
            var answer = HttpExchanges.send(http.now(), request, body, limit);
            if (answer.statusCode() != 200) {
                throw new KvFerryException(
                        ErrorCode.PROTOCOL,
                        admin + " answers " + answer.statusCode() + " to " + question);
            }
            return answer;
        } catch (IOException e) {
            throw lost(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(ErrorCode.CANCELLED, "interrupted", e);
        }
    }

    private KvFerryException lost(IOException e) {
        ErrorCode code =
                switch (e) {
                    case ConnectException _, HttpConnectTimeoutException _ -> ErrorCode.PEER_LOST;
                    case HttpTimeoutException _ -> ErrorCode.TIMEOUT;
                    default -> ErrorCode.IO;
                };
        return new KvFerryException(
                code, "the master's admin port " + admin + " gives no answer: " + e, e);
    }

    @Override
    public void close() {
        http.close();
    }
}
