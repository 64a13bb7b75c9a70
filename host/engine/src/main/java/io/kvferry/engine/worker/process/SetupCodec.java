// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/// The byte form of what a worker process is opened with. Both sides are the same build.
final class SetupCodec {
    private SetupCodec() {}

    static void write(WireWriter out, EngineInfo engine) {
        out.string(engine.modelName()).i32(engine.worldSize()).i32(engine.dataParallelRank());
        out.i64(engine.incarnation());
        write(out, engine.namespace());
        write(out, engine.cache());
    }

    static EngineInfo engine(WireReader in) {
        var modelName = in.string();
        int worldSize = in.i32();
        int dataParallelRank = in.i32();
        long incarnation = in.i64();
        var namespace = namespace(in);
        return new EngineInfo(
                modelName, namespace, cache(in), worldSize, dataParallelRank, incarnation);
    }

    private static void write(WireWriter out, KvCacheSpec cache) {
        out.i32(cache.groups().size());
        for (var group : cache.groups()) {
            out.string(group.kind().name());
            write(out, group.format());
            out.i32(group.layers().size());
            group.layers().forEach(out::string);
            out.i32(group.blockTokens()).i64(group.blockBytes()).i32(group.windowTokens());
        }
        out.i32(cache.blockCount());
    }

    private static void write(WireWriter out, KvFormat format) {
        switch (format) {
            case KvFormat.Heads(var dtype, var layout, int kvHeads, int headDim) ->
                    out.u8(0).string(dtype.label()).string(layout.name()).i32(kvHeads).i32(headDim);
            case KvFormat.Vectors(var dtype, int width) ->
                    out.u8(1).string(dtype.label()).i32(width);
            case KvFormat.Opaque(var dtype) -> out.u8(2).string(dtype.label());
        }
    }

    private static KvFormat format(WireReader in) {
        int kind = in.u8();
        var dtype = dtype(in.string());
        return switch (kind) {
            case 0 -> new KvFormat.Heads(dtype, KvLayout.valueOf(in.string()), in.i32(), in.i32());
            case 1 -> new KvFormat.Vectors(dtype, in.i32());
            case 2 -> new KvFormat.Opaque(dtype);
            default ->
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL, "cache format of unknown kind " + kind);
        };
    }

    private static KvCacheSpec cache(WireReader in) {
        var groups = new ArrayList<KvCacheGroup>();
        for (int n = in.count(20); n > 0; n--) {
            var kind = KvCacheGroup.Kind.valueOf(in.string());
            var format = format(in);
            var layers = new ArrayList<String>();
            for (int l = in.count(4); l > 0; l--) {
                layers.add(in.string());
            }
            groups.add(
                    new KvCacheGroup(
                            groups.size(), kind, format, layers, in.i32(), in.i64(), in.i32()));
        }
        return new KvCacheSpec(groups, in.i32());
    }

    private static DType dtype(String label) {
        return DType.ofLabel(label)
                .orElseThrow(() -> new KvFerryException(ErrorCode.PROTOCOL, "dtype " + label));
    }

    private static void write(WireWriter out, CacheNamespace namespace) {
        out.string(namespace.model()).string(namespace.runner()).string(namespace.dtype().label());
        out.string(namespace.layout().name())
                .i32(namespace.layoutVersion())
                .i32(namespace.blockTokens());
        out.i32(namespace.tpSize()).i32(namespace.ppSize()).string(namespace.salt());
    }

    private static CacheNamespace namespace(WireReader in) {
        return new CacheNamespace(
                in.string(),
                in.string(),
                dtype(in.string()),
                KvLayout.valueOf(in.string()),
                in.i32(),
                in.i32(),
                in.i32(),
                in.i32(),
                in.string());
    }

    static void write(WireWriter out, ConnectorConfig config) {
        out.string(config.connector()).string(config.role().name()).string(config.engineId());
        out.string(config.bufferDevice())
                .i64(config.bufferSizeBytes())
                .i32(config.rank())
                .i32(config.parallelSize());
        out.string(config.ip()).i32(config.port()).string(config.failurePolicy().name());
        json(out, config.extra());
    }

    static ConnectorConfig config(WireReader in) {
        return new ConnectorConfig(
                in.string(),
                KvRole.valueOf(in.string()),
                in.string(),
                in.string(),
                in.i64(),
                in.i32(),
                in.i32(),
                in.string(),
                in.i32(),
                LoadFailurePolicy.valueOf(in.string()),
                map(in));
    }

    /// JSON values: null, String, Boolean, whole numbers, other numbers, lists, maps.
    static void json(WireWriter out, @Nullable Object value) {
        switch (value) {
            case null -> out.u8(0);
            case String text -> out.u8(1).string(text);
            case Boolean flag -> out.u8(2).bool(flag);
            case Integer number -> out.u8(3).i64(number);
            case Long number -> out.u8(3).i64(number);
            case Number number -> out.u8(4).f64(number.doubleValue());
            case List<?> list -> {
                out.u8(5).i32(list.size());
                list.forEach(item -> json(out, item));
            }
            case Map<?, ?> map -> {
                out.u8(6).i32(map.size());
                map.forEach((key, item) -> json(out.string(key.toString()), item));
            }
            default ->
                    throw new KvFerryException(
                            ErrorCode.BAD_CONFIG,
                            "option value of "
                                    + value.getClass().getName()
                                    + " cannot go to a worker process");
        }
    }

    static @Nullable Object json(WireReader in) {
        int kind = in.u8();
        return switch (kind) {
            case 0 -> null;
            case 1 -> in.string();
            case 2 -> in.bool();
            case 3 -> in.i64();
            case 4 -> in.f64();
            case 5 -> {
                var list = new ArrayList<@Nullable Object>();
                for (int n = in.count(1); n > 0; n--) {
                    list.add(json(in));
                }
                yield list;
            }
            case 6 -> {
                var map = new LinkedHashMap<String, @Nullable Object>();
                for (int n = in.count(5); n > 0; n--) {
                    map.put(in.string(), json(in));
                }
                yield map;
            }
            default ->
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL, "option value of unknown kind " + kind);
        };
    }

    @SuppressWarnings("unchecked") // written as a map
    static Map<String, Object> map(WireReader in) {
        return (Map<String, Object>) Objects.requireNonNull(json(in), "written as a map");
    }
}
