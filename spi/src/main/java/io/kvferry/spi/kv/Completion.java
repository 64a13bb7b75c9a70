// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.Objects;

/// One transfer ended on one rank; each (id, rank) is reported once.
///
/// @param rank the reporting rank, or [#ALL_RANKS] once merged
public record Completion(TransferId id, int rank, TransferResult result) {
    /// The rank of a merged completion.
    public static final int ALL_RANKS = -1;

    public Completion {
        Objects.requireNonNull(id, "id");
        Objects.requireNonNull(result, "result");
    }

    public void write(WireWriter out) {
        id.write(out);
        out.i32(rank);
        switch (result) {
            case TransferResult.Completed(long bytes) -> out.u8(0).i64(bytes);
            case TransferResult.Failed(Failure failure, var blocks) -> {
                out.u8(1).i32(failure.code().wire()).string(failure.message()).i32(blocks.size());
                for (var failed : blocks) {
                    out.i32(failed.group()).ints(failed.positions());
                }
            }
            case TransferResult.Revoked() -> out.u8(2);
        }
    }

    public static Completion read(WireReader in) {
        var id = TransferId.read(in);
        int rank = in.i32();
        return new Completion(id, rank, readResult(in));
    }

    private static TransferResult readResult(WireReader in) {
        int kind = in.u8();
        return switch (kind) {
            case 0 -> new TransferResult.Completed(in.i64());
            case 1 -> {
                var code = ErrorCode.ofWire(in.i32()).orElse(ErrorCode.INTERNAL);
                var failure = new Failure(code, in.string());
                var blocks = new ArrayList<TransferResult.FailedBlocks>();
                for (int n = in.count(8); n > 0; n--) {
                    blocks.add(new TransferResult.FailedBlocks(in.i32(), in.ints()));
                }
                yield new TransferResult.Failed(failure, blocks);
            }
            case 2 -> new TransferResult.Revoked();
            default ->
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL, "completion of unknown kind " + kind);
        };
    }
}
