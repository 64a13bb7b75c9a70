// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.engine.model.TokenLogprobs;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.recovery.Opened;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/// What one rank did in one step. One per rank, reused.
public final class RankResult {
    /// No token: the item was not sampled, failed, or was skipped.
    public static final int NO_TOKEN = -1;

    private int[] tokens = new int[16];
    private @Nullable Failure[] failures = new Failure[16];
    private boolean[] skipped = new boolean[16];
    private @Nullable TokenLogprobs[] logprobs = new TokenLogprobs[16];

    /// By item, for those few that want them; one for each of [PlannedItem#promptLogits].
    private @Nullable TokenLogprobs[] @Nullable [] promptLogprobs =
            new @Nullable TokenLogprobs[16] @Nullable [];

    private int size;
    private boolean clean = true;

    /// Whether any log-probabilities are there.
    private boolean scored;

    private StepReport kvReport = nothing(0, 0);
    private StepReport ecReport = nothing(0, 0);
    private @Nullable Failure kvDefect;
    private @Nullable Failure ecDefect;
    private @Nullable Opened kvOpened;
    private @Nullable Opened ecOpened;
    private boolean kvUnclosed;
    private boolean ecUnclosed;
    private final List<EncodeFailure> encodeFailures = new ArrayList<>();

    /// An item that could not be encoded.
    public record EncodeFailure(String hash, Failure failure) {}

    private static StepReport nothing(int rank, long step) {
        return new StepReport(rank, step, List.of(), Payload.EMPTY, Stats.EMPTY, List.of());
    }

    public void reset(int items, int rank, long step) {
        forgetItems();
        size = items;
        if (tokens.length < items) {
            int capacity = Math.max(items, 2 * tokens.length);
            tokens = new int[capacity];
            failures = new Failure[capacity];
            skipped = new boolean[capacity];
            logprobs = new TokenLogprobs[capacity];
            promptLogprobs = new @Nullable TokenLogprobs[capacity] @Nullable [];
        }
        Arrays.fill(tokens, 0, items, NO_TOKEN);
        kvReport = nothing(rank, step);
        ecReport = kvReport;
        kvDefect = null;
        ecDefect = null;
        kvOpened = null;
        ecOpened = null;
        kvUnclosed = false;
        ecUnclosed = false;
        encodeFailures.clear();
    }

    /// Clears what few steps write.
    private void forgetItems() {
        if (!clean) {
            Arrays.fill(failures, null);
            Arrays.fill(skipped, false);
            clean = true;
        }
        if (scored) {
            Arrays.fill(logprobs, null);
            Arrays.fill(promptLogprobs, null);
            scored = false;
        }
    }

    public int size() {
        return size;
    }

    /// The next token of an item, or [#NO_TOKEN].
    public int token(int item) {
        return tokens[item];
    }

    /// The log-probabilities that belong to it, where the request wants them.
    public Optional<TokenLogprobs> logprobs(int item) {
        return Optional.ofNullable(logprobs[item]);
    }

    public void logprobs(int item, TokenLogprobs values) {
        logprobs[item] = values;
        scored = true;
    }

    /// Log-probabilities of the tokens that follow the first ones of this step, all of them the
    /// prompt's; empty for nearly every item.
    public List<TokenLogprobs> promptLogprobs(int item) {
        var values = promptLogprobs[item];
        return values == null ? List.of() : List.of(values);
    }

    /// Sets the `at`-th of `count`.
    public void promptLogprobs(int item, int count, int at, TokenLogprobs value) {
        var values = promptLogprobs[item];
        if (values == null) {
            values = new TokenLogprobs[count];
            promptLogprobs[item] = values;
            scored = true;
        }
        values[at] = value;
    }

    /// Whether so many are there, each of them.
    public boolean hasPromptLogprobs(int item, int count) {
        var values = promptLogprobs[item];
        if (values == null) {
            return count == 0;
        }
        for (var value : values) {
            if (value == null) {
                return false;
            }
        }
        return values.length == count;
    }

    /// Whether all items were computed: none failed or was skipped.
    public boolean isClean() {
        return clean;
    }

    public Optional<Failure> failure(int item) {
        return Optional.ofNullable(failures[item]);
    }

    public boolean failed(int item) {
        return failures[item] != null;
    }

    /// Whether the item was skipped because an encoder output that it needs is missing.
    public boolean skipped(int item) {
        return skipped[item];
    }

    public StepReport kvReport() {
        return kvReport;
    }

    public StepReport ecReport() {
        return ecReport;
    }

    /// Why the KV connector's worker half was given up in this step.
    public Optional<Failure> kvDefect() {
        return Optional.ofNullable(kvDefect);
    }

    public Optional<Failure> ecDefect() {
        return Optional.ofNullable(ecDefect);
    }

    /// How opening the KV connector's worker half again went, once it is done.
    public Optional<Opened> kvOpened() {
        return Optional.ofNullable(kvOpened);
    }

    public Optional<Opened> ecOpened() {
        return Optional.ofNullable(ecOpened);
    }

    /// Whether a half of the KV connector that was given up is still being closed.
    public boolean kvUnclosed() {
        return kvUnclosed;
    }

    public boolean ecUnclosed() {
        return ecUnclosed;
    }

    public void unclosed(boolean kv, boolean ec) {
        kvUnclosed = kv;
        ecUnclosed = ec;
    }

    public void kvOpened(Opened opened) {
        kvOpened = opened;
    }

    public void ecOpened(Opened opened) {
        ecOpened = opened;
    }

    public List<EncodeFailure> encodeFailures() {
        return encodeFailures;
    }

    public void token(int item, int token) {
        tokens[item] = token;
    }

    public void fail(int item, Failure failure) {
        failures[item] = failure;
        clean = false;
    }

    public void skip(int item) {
        skipped[item] = true;
        clean = false;
    }

    public void kvReport(StepReport report) {
        kvReport = report;
    }

    public void ecReport(StepReport report) {
        ecReport = report;
    }

    public void kvDefect(Failure failure) {
        kvDefect = failure;
    }

    public void ecDefect(Failure failure) {
        ecDefect = failure;
    }

    public void encodeFailure(String hash, Failure failure) {
        encodeFailures.add(new EncodeFailure(hash, failure));
    }
}
