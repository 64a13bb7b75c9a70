// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.block.RequestBlocks;
import io.kvferry.engine.connector.PendingLookup;
import io.kvferry.engine.connector.Transfer;
import io.kvferry.engine.encoder.RequestItems;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.sched.RequestLifecycle.Status;
import io.kvferry.engine.stream.Generation;
import io.kvferry.engine.stream.TokenSequence;
import io.kvferry.engine.telemetry.RequestClock;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.LookupResult.Share;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.RequestView.ItemKey;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.toolkit.hash.BlockHasher;
import io.kvferry.toolkit.hash.HashChain;

import org.jspecify.annotations.Nullable;

import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.function.IntUnaryOperator;

/// All that the scheduler knows about one request. Made by the submitting thread, then handed over
/// to the scheduler.
public final class RequestState extends RequestLifecycle.Place implements RequestView {
    final String id;
    final GenerationRequest request;
    final Generation generation;
    final HashChain hashes;
    final RequestBlocks blocks;
    final LoadFailurePolicy failurePolicy;
    private final BlockHasher.Extra extra;
    private final int blockTokens;
    private final TokenSequence tokens;
    private final IntUnaryOperator tokenAt;
    private final int promptTokens;

    /// Tokens of the blocks in `hashes`.
    private int hashedTokens;

    /// Tokens whose KV is in the blocks.
    int computed;

    /// Positions that the runner has seen since it last had to forget the request.
    int runnerKnows;

    /// Full blocks that were offered to the prefix cache.
    int published;

    /// How often the prefix cache had been cleared when the request was admitted.
    int clearingsSeen;

    int attempt;
    int preemptions;

    /// How often workers were lost while it had computed or loaded something.
    int workersLost;

    /// Whether it starts over when its load has ended, because a reset came after the load was
    /// planned.
    boolean startsOver;

    /// Whether the request got its blocks in the step that is being planned.
    boolean admitted;

    /// Pool version at which the request could not be admitted; a retry is pointless before it
    /// changes.
    long blockedAt = -1;

    /// Blocks that it lacked then, as many free ones as it waits for, and when that was.
    long blocksLacking;

    long blockedBelow;

    /// How many of those were for the prompts of others, which have ended some time.
    long blocksLeft;

    long blockedSince;

    /// When it was last looked whether only stale transfers keep it from running.
    long staleLookAt = System.nanoTime();

    /// The position of the encoder item that keeps the request from running; -1 when there is none.
    int itemFrom = -1;

    /// When it was looked up and lacked that item.
    long itemSince;

    final PendingLookup pending = new PendingLookup();

    /// Sources that broke a promise to this request.
    Set<String> broken = Set.of();

    @Nullable Load load;

    /// Its load as the connector has it open.
    @Nullable Transfer transfer;

    /// When its generation ends.
    @Nullable StopCriteria stops;

    final RequestClock clock = new RequestClock();
    int localTokens;
    List<Share> external = List.of();
    int promptComputed;

    /// Its multimodal items.
    final RequestItems items;

    final boolean hasItems;

    /// A promise of the connector that the engine took up.
    static final class Load {
        final int from;
        final int to;
        final List<Share> shares;
        final boolean sync;

        /// When the engine took the promise, on this process's monotonic clock.
        private final long promisedAt = System.nanoTime();

        boolean late;

        /// Nanoseconds since the promise.
        long age() {
            return System.nanoTime() - promisedAt;
        }

        Load(int from, int to, List<Share> shares, boolean sync) {
            this.from = from;
            this.to = to;
            this.shares = shares;
            this.sync = sync;
        }
    }

    RequestState(
            String id,
            GenerationRequest request,
            Generation generation,
            HashChain hashes,
            RequestBlocks blocks,
            LoadFailurePolicy failurePolicy,
            int blockTokens,
            BlockHasher.Extra extra) {
        this.id = id;
        this.request = request;
        this.generation = generation;
        this.hashes = hashes;
        this.blocks = blocks;
        this.failurePolicy = failurePolicy;
        this.blockTokens = blockTokens;
        this.extra = extra;
        this.tokens = generation.sequence();
        this.promptTokens = request.prompt().length;
        this.tokenAt = tokens::get;
        this.items = new RequestItems(id, request.items(), request.ecParams(), this::waits);
        this.hasItems = !items.isEmpty();
    }

    /// The client's end.
    public RequestHandle handle() {
        return generation;
    }

    SamplingParams sampling() {
        return request.sampling();
    }

    /// Hashes the full blocks that have none yet.
    void hash(BlockHasher hasher) {
        if (tokens.count() - hashedTokens < blockTokens) { // no division for each token
            return;
        }
        int blocks = tokens.count() / blockTokens;
        if (tokens.count() == promptTokens) {
            hasher.extend(hashes, request.prompt(), blocks, extra);
        } else {
            hasher.extend(hashes, tokenAt, blocks, extra);
        }
        hashedTokens = blocks * blockTokens;
    }

    void append(int token) {
        tokens.append(token);
    }

    int generatedCount() {
        return tokens.count() - promptTokens;
    }

    /// The smaller, the sooner.
    int priority() {
        return request.priority();
    }

    /// Whether it does not run now, but may later.
    private boolean waits() {
        return status() != Status.RUNNING && status() != Status.ENDED;
    }

    /// The id of its current attempt to load.
    TransferId loadId() {
        return TransferId.load(id, attempt);
    }

    boolean ended() {
        return status() == Status.ENDED;
    }

    void breakPromise(List<Share> shares, int loadFrom, int validTo) {
        var more = new HashSet<>(broken);
        int at = loadFrom;
        for (var share : shares) {
            at += share.tokens();
            if (at > validTo) {
                more.add(share.source());
            }
        }
        broken = more;
    }

    @Override
    public String id() {
        return id;
    }

    @Override
    public int tokenCount() {
        return tokens.count();
    }

    @Override
    public int promptTokenCount() {
        return promptTokens;
    }

    @Override
    public int token(int position) {
        return tokens.get(Objects.checkIndex(position, tokens.count()));
    }

    @Override
    public int blockHashCount() {
        return hashes.count();
    }

    @Override
    public BlockHash blockHash(int block) {
        return hashes.get(block);
    }

    @Override
    public String externalId() {
        return request.externalId().isEmpty() ? id : request.externalId();
    }

    @Override
    public int promptIndex() {
        return request.promptIndex();
    }

    @Override
    public List<ItemKey> extraKeys(int block) {
        int from = block * blockTokens;
        return items.within(from, from + blockTokens).stream()
                .map(item -> new ItemKey(item.hash(), item.position() - from))
                .toList();
    }

    @Override
    public int computedTokenCount() {
        return computed;
    }

    @Override
    public TransferParams params() {
        return request.kvParams();
    }

    @Override
    public String cacheSalt() {
        return request.cacheSalt();
    }

    @Override
    public int attempt() {
        return attempt;
    }

    @Override
    public String toString() {
        return id + "[" + status() + ", " + computed + "/" + tokens.count() + "]";
    }
}
