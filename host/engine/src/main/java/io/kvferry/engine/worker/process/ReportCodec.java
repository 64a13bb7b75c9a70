// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView.ItemKey;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/// The byte form in which a step report crosses from a worker process to its engine. Both sides are
/// the same build.
public final class ReportCodec {
    private static final LookupResult.Tier[] TIERS = LookupResult.Tier.values();

    private ReportCodec() {}

    public static void write(WireWriter out, StepReport report) {
        out.i32(report.rank()).i64(report.step()).i32(report.completions().size());
        report.completions().forEach(completion -> write(out, completion));
        out.i32(report.payload().version()).bytes(report.payload().bytes());
        StatsCodec.write(out, report.stats());
        out.i32(report.events().size());
        report.events().forEach(event -> write(out, event));
    }

    /// @throws KvFerryException PROTOCOL for bytes that are no report
    public static StepReport read(WireReader in) {
        int rank = in.i32();
        long step = in.i64();
        var completions = new ArrayList<Completion>();
        for (int n = in.count(18); n > 0; n--) {
            completions.add(completion(in));
        }
        int version = in.i32();
        if (version < 0 || version > 0xffff) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, "step report with payload version " + version);
        }
        var bytes = in.bytes();
        var payload = bytes.length == 0 ? Payload.EMPTY : new Payload(version, bytes);
        var stats = StatsCodec.read(in);
        var events = new ArrayList<CacheEvent>();
        for (int n = in.count(5); n > 0; n--) {
            events.add(event(in));
        }
        return new StepReport(rank, step, completions, payload, stats, events);
    }

    private static void write(WireWriter out, Completion completion) {
        completion.id().write(out);
        out.i32(completion.rank());
        switch (completion.result()) {
            case Completion.Completed(long bytes) -> out.u8(0).i64(bytes);
            case Completion.Failed(Failure failure, var blocks) -> {
                out.u8(1).i32(failure.code().wire()).string(failure.message()).i32(blocks.size());
                for (var failed : blocks) {
                    out.i32(failed.group()).ints(failed.positions());
                }
            }
            case Completion.Revoked() -> out.u8(2);
        }
    }

    private static Completion completion(WireReader in) {
        var id = TransferId.read(in);
        int rank = in.i32();
        return new Completion(id, rank, result(in));
    }

    private static Completion.Result result(WireReader in) {
        int kind = in.u8();
        return switch (kind) {
            case 0 -> new Completion.Completed(in.i64());
            case 1 -> {
                var code = ErrorCode.ofWire(in.i32()).orElse(ErrorCode.INTERNAL);
                var failure = new Failure(code, in.string());
                var blocks = new ArrayList<Completion.FailedBlocks>();
                for (int n = in.count(8); n > 0; n--) {
                    blocks.add(new Completion.FailedBlocks(in.i32(), in.ints()));
                }
                yield new Completion.Failed(failure, blocks);
            }
            case 2 -> new Completion.Revoked();
            default ->
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL, "completion of unknown kind " + kind);
        };
    }

    private static void write(WireWriter out, CacheEvent event) {
        switch (event) {
            case CacheEvent.Stored(
                            var source,
                            var tier,
                            int group,
                            var parent,
                            var blocks,
                            int blockTokens,
                            var tokens,
                            var extraKeys,
                            var salt) -> {
                out.u8(0).string(source).u8(tier.ordinal()).i32(group).bool(parent.isPresent());
                parent.ifPresent(hash -> out.raw(hash.toBytes(), 0, BlockHash.BYTES));
                writeHashes(out, blocks);
                out.i32(blockTokens).ints(tokens).i32(extraKeys.size());
                for (var keys : extraKeys) {
                    out.i32(keys.size());
                    keys.forEach(key -> out.string(key.hash()).i32(key.offset()));
                }
                out.string(salt);
            }
            case CacheEvent.Removed(var source, var tier, int group, var blocks) -> {
                out.u8(1).string(source).u8(tier.ordinal()).i32(group);
                writeHashes(out, blocks);
            }
            case CacheEvent.Cleared(var source) -> out.u8(2).string(source);
            case CacheEvent.ItemsStored(var source, var tier, var items) -> {
                out.u8(3).string(source).u8(tier.ordinal()).i32(items.size());
                items.forEach(out::string);
            }
            case CacheEvent.ItemsRemoved(var source, var tier, var items) -> {
                out.u8(4).string(source).u8(tier.ordinal()).i32(items.size());
                items.forEach(out::string);
            }
        }
    }

    private static List<ItemKey> readKeys(WireReader in) {
        var keys = new ArrayList<ItemKey>();
        for (int n = in.count(8); n > 0; n--) {
            keys.add(new ItemKey(in.string(), in.i32()));
        }
        return keys;
    }

    private static CacheEvent event(WireReader in) {
        int kind = in.u8();
        var source = in.string();
        return switch (kind) {
            case 0 -> {
                var tier = tier(in);
                int group = in.i32();
                var parent = in.bool() ? Optional.of(readHash(in)) : Optional.<BlockHash>empty();
                var blocks = readHashes(in);
                int blockTokens = in.i32();
                var tokens = in.ints();
                if (tokens.length > 0 && tokens.length != (long) blocks.size() * blockTokens) {
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL,
                            "cache event of "
                                    + blocks.size()
                                    + " blocks with "
                                    + tokens.length
                                    + " tokens");
                }
                var extraKeys = new ArrayList<List<ItemKey>>();
                for (int n = in.count(4); n > 0; n--) {
                    extraKeys.add(readKeys(in));
                }
                if (!extraKeys.isEmpty() && extraKeys.size() != blocks.size()) {
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL,
                            "cache event of "
                                    + blocks.size()
                                    + " blocks with extra keys of "
                                    + extraKeys.size());
                }
                yield new CacheEvent.Stored(
                        source,
                        tier,
                        group,
                        parent,
                        blocks,
                        blockTokens,
                        tokens,
                        extraKeys,
                        in.string());
            }
            case 1 -> new CacheEvent.Removed(source, tier(in), in.i32(), readHashes(in));
            case 2 -> new CacheEvent.Cleared(source);
            case 3 -> new CacheEvent.ItemsStored(source, tier(in), readItems(in));
            case 4 -> new CacheEvent.ItemsRemoved(source, tier(in), readItems(in));
            default ->
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL, "cache event of unknown kind " + kind);
        };
    }

    private static LookupResult.Tier tier(WireReader in) {
        int tier = in.u8();
        if (tier >= TIERS.length) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "cache event of unknown tier " + tier);
        }
        return TIERS[tier];
    }

    private static void writeHashes(WireWriter out, List<BlockHash> hashes) {
        out.i32(hashes.size());
        for (var hash : hashes) {
            out.raw(hash.toBytes(), 0, BlockHash.BYTES);
        }
    }

    private static BlockHash readHash(WireReader in) {
        return BlockHash.of(in.raw(BlockHash.BYTES), 0);
    }

    private static List<BlockHash> readHashes(WireReader in) {
        int count = in.count(BlockHash.BYTES);
        var hashes = new ArrayList<BlockHash>(count);
        for (int i = 0; i < count; i++) {
            hashes.add(readHash(in));
        }
        return hashes;
    }

    private static List<String> readItems(WireReader in) {
        int count = in.count(4);
        var items = new ArrayList<String>(count);
        for (int i = 0; i < count; i++) {
            items.add(in.string());
        }
        return items;
    }
}
