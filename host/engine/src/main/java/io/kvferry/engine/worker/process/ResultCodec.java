// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.recovery.Opened;

import java.util.Optional;

/// The byte form of a [RankResult].
final class ResultCodec {
    private ResultCodec() {}

    static void write(WireWriter out, RankResult result) {
        out.reset().i32(result.size());
        for (int i = 0; i < result.size(); i++) {
            out.i32(result.token(i)).bool(result.skipped(i));
            failure(out, result.failure(i));
            logprobs(out, result.logprobs(i));
            promptLogprobs(out, result, i);
        }
        ReportCodec.write(out, result.kvReport());
        ReportCodec.write(out, result.ecReport());
        failure(out, result.kvDefect());
        failure(out, result.ecDefect());
        opened(out, result.kvOpened());
        opened(out, result.ecOpened());
        out.bool(result.kvUnclosed()).bool(result.ecUnclosed());
        out.i32(result.encodeFailures().size());
        for (var failed : result.encodeFailures()) {
            failure(out.string(failed.hash()), Optional.of(failed.failure()));
        }
    }

    /// @param planned items of the step's plan
    /// @throws KvFerryException PROTOCOL when the reply is about more items or fewer; the result is
    ///   as before
    static void read(WireReader in, RankResult result, int rank, long step, int planned) {
        int items = in.count(11);
        if (items != planned) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "rank "
                            + rank
                            + " answered for "
                            + items
                            + " requests of step "
                            + step
                            + ", planned were "
                            + planned);
        }
        result.reset(items, rank, step);
        for (int i = 0; i < items; i++) {
            result.token(i, in.i32());
            if (in.bool()) {
                result.skip(i);
            }
            var failure = failure(in);
            if (failure.isPresent()) { // no lambda, which would be one more object per request
                result.fail(i, failure.get());
            }
            if (in.bool()) {
                result.logprobs(i, logprobs(in));
            }
            int prompt = in.count(12);
            for (int at = 0; at < prompt; at++) {
                result.promptLogprobs(i, prompt, at, logprobs(in));
            }
        }
        result.kvReport(ReportCodec.read(in));
        result.ecReport(ReportCodec.read(in));
        failure(in).ifPresent(result::kvDefect);
        failure(in).ifPresent(result::ecDefect);
        opened(in).ifPresent(result::kvOpened);
        opened(in).ifPresent(result::ecOpened);
        result.unclosed(in.bool(), in.bool());
        for (int n = in.count(5); n > 0; n--) {
            var hash = in.string();
            failure(in).ifPresent(failure -> result.encodeFailure(hash, failure));
        }
        in.end();
    }

    private static void opened(WireWriter out, Optional<Opened> opened) {
        out.bool(opened.isPresent());
        opened.ifPresent(how -> how.write(out));
    }

    private static Optional<Opened> opened(WireReader in) {
        return in.bool() ? Optional.of(Opened.read(in)) : Optional.empty();
    }

    private static void logprobs(WireWriter out, Optional<TokenLogprobs> logprobs) {
        out.bool(logprobs.isPresent());
        logprobs.ifPresent(values -> logprobs(out, values));
    }

    /// Omitted for a failed item, where they may be incomplete and are not read.
    private static void promptLogprobs(WireWriter out, RankResult result, int item) {
        if (result.failed(item)) {
            out.i32(0);
            return;
        }
        var values = result.promptLogprobs(item);
        out.i32(values.size());
        for (int i = 0; i < values.size(); i++) {
            logprobs(out, values.get(i));
        }
    }

    private static void logprobs(WireWriter out, TokenLogprobs values) {
        out.f64(values.chosen()).i32(values.topTokens().length);
        for (int i = 0; i < values.topTokens().length; i++) {
            out.i32(values.topTokens()[i]).f64(values.topLogprobs()[i]);
        }
    }

    private static TokenLogprobs logprobs(WireReader in) {
        float chosen = (float) in.f64();
        int count = in.count(12);
        var tokens = new int[count];
        var values = new float[count];
        for (int i = 0; i < count; i++) {
            tokens[i] = in.i32();
            values[i] = (float) in.f64();
        }
        return new TokenLogprobs(chosen, tokens, values);
    }

    private static void failure(WireWriter out, Optional<Failure> failure) {
        out.bool(failure.isPresent());
        failure.ifPresent(f -> out.i32(f.code().wire()).string(f.message()));
    }

    private static Optional<Failure> failure(WireReader in) {
        if (!in.bool()) {
            return Optional.empty();
        }
        var code = ErrorCode.ofWire(in.i32()).orElse(ErrorCode.INTERNAL);
        return Optional.of(new Failure(code, in.string()));
    }
}
