// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/// The JSON of the bootstrap service. Extra keys are ignored, integers may be decimal strings, as
/// in vLLM.
final class BootstrapJson {
    private static final JsonMapper JSON = JsonMapper.builder().build();

    private BootstrapJson() {}

    static String write(WorkerRegistration registration) {
        var body =
                JSON.createObjectNode()
                        .put("engine_id", registration.engineId())
                        .put("dp_rank", registration.dpRank())
                        .put("tp_rank", registration.tpRank())
                        .put("pp_rank", registration.ppRank())
                        .put("addr", registration.addr());
        registration
                .extra()
                .ifPresent(extra ->
                        body.put("kvferry_incarnation", extra.incarnation())
                                .put("kvferry_tp_size", extra.tpSize())
                                .put("kvferry_pp_size", extra.ppSize())
                                .put("kvferry_grants", extra.grants())
                                .put("kvferry_lease_ms", extra.lease().toMillis()));
        return JSON.writeValueAsString(body);
    }

    /// @throws KvFerryException [ErrorCode#PROTOCOL] with the field at fault
    static WorkerRegistration readRegistration(byte[] body) {
        var json = object(body);
        try {
            Optional<WorkerRegistration.Extra> extra =
                    json.has("kvferry_incarnation")
                            ? Optional.of(
                                    new WorkerRegistration.Extra(
                                            text(json, "kvferry_incarnation"),
                                            integer(json, "kvferry_tp_size"),
                                            integer(json, "kvferry_pp_size"),
                                            flag(json, "kvferry_grants"),
                                            Duration.ofMillis(integer(json, "kvferry_lease_ms"))))
                            : Optional.empty();
            return new WorkerRegistration(
                    text(json, "engine_id"),
                    integer(json, "dp_rank"),
                    integer(json, "tp_rank"),
                    integer(json, "pp_rank"),
                    text(json, "addr"),
                    extra);
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(ErrorCode.PROTOCOL, String.valueOf(e.getMessage()), e);
        }
    }

    /// The answer to `/query`.
    ///
    /// @param toKvferry whether the asker understands the keys that kvferry adds; it gets
    ///   incomplete engines too
    static String write(Map<Integer, EngineEntry> entries, boolean toKvferry) {
        var body = JSON.createObjectNode();
        entries.forEach((dpRank, entry) -> {
            if (!toKvferry
                    && (entry.tpSize() > 0 && !entry.complete() || entry.workers().isEmpty())) {
                return; // a vLLM decoder would take the short list for the whole engine
            }
            var engine =
                    body.putObject(Integer.toString(dpRank)).put("engine_id", entry.engineId());
            var workers = engine.putObject("worker_addr");
            new TreeMap<>(entry.workers())
                    .forEach((rank, addr) -> {
                        var tp = Integer.toString(rank.tp());
                        var stages =
                                workers.get(tp) instanceof ObjectNode known
                                        ? known
                                        : workers.putObject(tp);
                        stages.put(Integer.toString(rank.pp()), addr);
                    });
            if (toKvferry && entry.kvferry()) {
                engine.putObject("kvferry")
                        .put("incarnation", entry.incarnation())
                        .put("tp_size", entry.tpSize())
                        .put("pp_size", entry.ppSize())
                        .put("grants", entry.grants());
            }
        });
        return JSON.writeValueAsString(body);
    }

    /// Reads an answer to `/query`, by dp rank.
    ///
    /// @throws KvFerryException [ErrorCode#PROTOCOL]
    static Map<Integer, EngineEntry> readEntries(byte[] body) {
        var entries = new TreeMap<Integer, EngineEntry>();
        for (var property : object(body).properties()) {
            var engine = property.getValue();
            var workers = new HashMap<EngineEntry.Rank, String>();
            for (var tp : child(engine, "worker_addr").properties()) {
                for (var pp : tp.getValue().properties()) {
                    workers.put(
                            new EngineEntry.Rank(rank(tp.getKey()), rank(pp.getKey())),
                            text(tp.getValue(), pp.getKey()));
                }
            }
            var extra = engine.get("kvferry");
            boolean kvferry = extra != null && extra.isObject();
            entries.put(
                    rank(property.getKey()),
                    new EngineEntry(
                            text(engine, "engine_id"),
                            kvferry,
                            kvferry ? text(extra, "incarnation") : "",
                            kvferry ? integer(extra, "tp_size") : 0,
                            kvferry ? integer(extra, "pp_size") : 0,
                            kvferry && flag(extra, "grants"),
                            workers));
        }
        return entries;
    }

    static String detail(String text) {
        return JSON.writeValueAsString(JSON.createObjectNode().put("detail", text));
    }

    private static JsonNode object(byte[] body) {
        try {
            var json = JSON.readTree(body);
            if (json.isObject()) {
                return json;
            }
            throw new KvFerryException(ErrorCode.PROTOCOL, "expected a JSON object");
        } catch (JacksonException e) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, "not JSON: " + e.getOriginalMessage(), e);
        }
    }

    private static JsonNode child(JsonNode json, String key) {
        var value = json.get(key);
        if (value == null || !value.isObject()) {
            throw new KvFerryException(ErrorCode.PROTOCOL, key + ": expected an object");
        }
        return value;
    }

    private static String text(JsonNode json, String key) {
        var value = json.get(key);
        if (value == null || !value.isString()) {
            throw new KvFerryException(ErrorCode.PROTOCOL, key + ": expected a string");
        }
        return value.stringValue();
    }

    /// Absent means no.
    private static boolean flag(JsonNode json, String key) {
        var value = json.get(key);
        return value != null && value.isBoolean() && value.booleanValue();
    }

    private static int integer(JsonNode json, String key) {
        var value = json.get(key);
        if (value != null && value.isInt()) {
            return value.intValue();
        }
        if (value != null && value.isString()) {
            return rank(value.stringValue());
        }
        throw new KvFerryException(ErrorCode.PROTOCOL, key + ": expected an integer");
    }

    private static int rank(String decimal) {
        try {
            int rank = Integer.parseInt(decimal);
            if (rank < 0 || rank == Integer.MAX_VALUE) { // of that there is no next one
                throw new KvFerryException(ErrorCode.PROTOCOL, "not a rank: " + decimal);
            }
            return rank;
        } catch (NumberFormatException e) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "not a decimal number: " + decimal, e);
        }
    }
}
