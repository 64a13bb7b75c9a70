// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.block.RequestBlocks;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.stream.Generation;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.toolkit.hash.BlockHasher;
import io.kvferry.toolkit.hash.HashChain;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/// What happens to a request on its client's thread: it is checked, counted and hashed.
///
/// Threading: any thread.
public final class Admission {
    private static final byte[] NO_EXTRA = new byte[0];

    private final Limits limits;
    private final ModelInfo model;
    private final Tokenizer tokenizer;
    private final LoadFailurePolicy failurePolicy;
    private final int groups;
    private final int blockTokens;
    private final CachePool pool;
    private final boolean loadsKv;
    private final byte[] contentDigest;
    private final AtomicInteger inside = new AtomicInteger();
    private final AtomicLong ids = new AtomicLong();

    Admission(Scheduler.Parts parts, KvCache cache, byte[] contentDigest) {
        this.limits = parts.limits();
        this.model = parts.model();
        this.tokenizer = parts.tokenizer();
        this.failurePolicy = parts.failurePolicy();
        this.groups = cache.groups();
        this.blockTokens = cache.blockTokens();
        this.pool = cache.pool();
        this.loadsKv = parts.kv().present();
        this.contentDigest = contentDigest;
    }

    /// Refuses what can never run.
    public void check(GenerationRequest request) {
        int prompt = request.prompt().length;
        int context = model.contextTokens();
        if (prompt >= context) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "a prompt of " + prompt + " tokens; the model's context holds " + context);
        }
        long tokens = Math.min(context, (long) prompt + request.sampling().maxTokens());
        long blocks = (tokens + blockTokens - 1) / blockTokens * groups;
        if (blocks > pool.total() && !limits.encodeOnly()) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "prompt and "
                            + request.sampling().maxTokens()
                            + " new tokens need "
                            + blocks
                            + " blocks, the pool has "
                            + pool.total());
        }
        checkItems(request);
        if (request.sampling().options().scoresPrompt() && !limits.scoresPrompts()) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    "the model's runner gives no logits of prompts: no log-probabilities of prompt tokens (echo with logprobs)");
        }
        int vocab = model.vocabSize();
        for (int token : request.prompt()) {
            if (token < 0 || token >= vocab) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "token id " + token + " is not in the vocabulary of " + vocab);
            }
        }
    }

    /// Refuses items that can never be in the encoder cache. Where a KV connector may bring what
    /// was computed from them, only the scheduler knows whether they are needed at all.
    private void checkItems(GenerationRequest request) {
        var rows = new HashMap<String, Integer>();
        for (var item : request.items()) {
            var other = rows.put(item.hash(), item.embeddings());
            if (other != null && other != item.embeddings()) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "item "
                                + item.hash()
                                + " has "
                                + other
                                + " rows at one position and "
                                + item.embeddings()
                                + " at another");
            }
        }
        var counts = rows.values().stream().mapToLong(Integer::longValue);
        long together = limits.encodeOnly() ? counts.sum() : counts.max().orElse(0);
        if (together > limits.encoderSlots() && (limits.encodeOnly() || !loadsKv)) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    (limits.encodeOnly() ? "items of " : "an item of ")
                            + together
                            + " rows; the encoder cache holds "
                            + limits.encoderSlots());
        }
    }

    /// One more request, if there is room for it.
    public void enter() {
        if (inside.incrementAndGet() > limits.maxQueued()) {
            inside.decrementAndGet();
            throw new KvFerryException(
                    ErrorCode.BACKPRESSURE,
                    limits.maxQueued() + " requests are in the engine already; try again later");
        }
    }

    /// One request less.
    public void leave() {
        inside.decrementAndGet();
    }

    /// The request with the tenant's salt folded into the hashes of its items, as it is into those
    /// of blocks: what two tenants give the same name are two items.
    private static GenerationRequest scoped(GenerationRequest request) {
        if (request.cacheSalt().isEmpty() || request.items().isEmpty()) {
            return request;
        }
        var items = new ArrayList<EncoderInput>(request.items().size());
        for (var item : request.items()) {
            items.add(
                    new EncoderInput(
                            salted(request.cacheSalt(), item.hash()),
                            item.modality(),
                            item.position(),
                            item.embeddings(),
                            item.content()));
        }
        return request.withItems(items);
    }

    private static String salted(String salt, String hash) {
        try {
            var sha = MessageDigest.getInstance("SHA-256");
            var bytes = salt.getBytes(StandardCharsets.UTF_8);
            sha.update(ByteBuffer.allocate(4).putInt(bytes.length).flip());
            sha.update(bytes);
            return HexFormat.of().formatHex(sha.digest(hash.getBytes(StandardCharsets.UTF_8)));
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every JDK has SHA-256", e);
        }
    }

    /// Unique by its number; the client's id behind it lets the logs of two engines be read side by
    /// side.
    public String newId(String externalId) {
        var id = "r" + ids.incrementAndGet();
        if (externalId.isEmpty()) {
            return id;
        }
        var kept = externalId.substring(0, Math.min(64, externalId.length()));
        // Plans and reports are UTF-8, which half a surrogate pair does not survive: a completion
        // would come back under another id.
        return id + ":" + new String(kept.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
    }

    /// Hashes the prompt here, on the client's thread, so that long prompts do not hold the
    /// scheduler up.
    public RequestState newState(String id, GenerationRequest submitted, Generation generation) {
        var request = scoped(submitted);
        var own = new BlockHasher(contentDigest, blockTokens);
        long tokens = (long) request.prompt().length + request.sampling().maxTokens();
        int expected = (int) (Math.min(tokens, model.contextTokens()) / blockTokens) + 1;
        var chain =
                new HashChain(
                        own.root(request.cacheSalt()),
                        Math.min(expected, request.prompt().length / blockTokens + 64));
        var state =
                new RequestState(
                        id,
                        request,
                        generation,
                        chain,
                        new RequestBlocks(pool, groups),
                        request.failurePolicy().orElse(failurePolicy),
                        blockTokens,
                        request.items().isEmpty()
                                ? BlockHasher.Extra.NONE
                                : block -> itemNames(request, block));
        state.hash(own);
        state.stops = new StopCriteria(state, model, tokenizer);
        return state;
    }

    private byte[] itemNames(GenerationRequest request, int block) {
        int from = block * blockTokens;
        var names = new StringBuilder();
        for (var item : request.items()) {
            if (item.position() < from + blockTokens
                    && item.position() + item.embeddings() > from) {
                names.append(item.position() - from).append(':').append(item.hash()).append('\n');
            }
        }
        return names.isEmpty() ? NO_EXTRA : names.toString().getBytes(StandardCharsets.UTF_8);
    }
}
