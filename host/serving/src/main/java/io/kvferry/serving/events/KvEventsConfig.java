// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;

/// vLLM's `--kv-events-config`, with its names and defaults; the default address alone is not
/// `tcp://*:5557` but of this host only, since events hold the tokens of prompts.
///
/// @param endpoint where batches are published; see [ZmqAddress]
/// @param replayEndpoint where earlier batches can be asked for
/// @param bufferSteps how many of them are kept, of at most [KvEventPublisher#MAX_REPLAY_BYTES]
/// @param hwm batches queued for a subscriber that is slow; more are dropped
/// @param maxQueueSize events that wait to be published; more are dropped
/// @param topic first frame of each message
public record KvEventsConfig(
        ZmqAddress endpoint,
        Optional<ZmqAddress> replayEndpoint,
        int bufferSteps,
        int hwm,
        int maxQueueSize,
        String topic) {
    private static final String DEFAULT_ENDPOINT = "tcp://127.0.0.1:5557";
    private static final String ENABLE = "enable_kv_cache_events";
    private static final String PUBLISHER = "publisher";
    private static final Set<String> KEYS =
            new TreeSet<>(
                    Set.of(
                            ENABLE,
                            PUBLISHER,
                            "endpoint",
                            "replay_endpoint",
                            "buffer_steps",
                            "hwm",
                            "max_queue_size",
                            "topic"));

    /// @param json the JSON object, as plain Java values
    /// @return empty when no events are to be published
    /// @throws KvFerryException BAD_CONFIG, naming the key
    public static Optional<KvEventsConfig> of(Map<String, Object> json) {
        for (var key : json.keySet()) {
            if (!KEYS.contains(key)) {
                throw bad("unknown key " + key + "; known are " + String.join(", ", KEYS));
            }
        }
        if (!(json.getOrDefault(ENABLE, false) instanceof Boolean enabled)) {
            throw bad(ENABLE + " must be true or false, got " + json.get(ENABLE));
        }
        var publisher = text(json, PUBLISHER, enabled ? "zmq" : "null");
        if (!Set.of("zmq", "null").contains(publisher)) {
            throw bad(PUBLISHER + " must be zmq or null, got " + publisher);
        }
        var replay = text(json, "replay_endpoint", "");
        var config =
                new KvEventsConfig(
                        ZmqAddress.of("endpoint", text(json, "endpoint", DEFAULT_ENDPOINT)),
                        replay.isEmpty()
                                ? Optional.empty()
                                : Optional.of(ZmqAddress.of("replay_endpoint", replay)),
                        number(json, "buffer_steps", 10_000),
                        number(json, "hwm", 100_000),
                        number(json, "max_queue_size", 100_000),
                        text(json, "topic", ""));
        return enabled && publisher.equals("zmq") ? Optional.of(config) : Optional.empty();
    }

    private static String text(Map<String, Object> json, String key, String byDefault) {
        if (!(json.getOrDefault(key, byDefault) instanceof String text)) {
            throw bad(key + " must be a string, got " + json.get(key));
        }
        return text;
    }

    private static int number(Map<String, Object> json, String key, int byDefault) {
        if (!(json.getOrDefault(key, (long) byDefault) instanceof Long number)
                || number < 1
                || number > 10_000_000) {
            throw bad(key + " must be a whole number from 1 to 10000000, got " + json.get(key));
        }
        return (int) (long) number;
    }

    static KvFerryException bad(String what) {
        return new KvFerryException(ErrorCode.BAD_CONFIG, "--kv-events-config: " + what);
    }
}
