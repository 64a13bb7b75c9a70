// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.TransferParams;

import java.util.List;
import java.util.Objects;
import java.util.Optional;

/// What a client wants.
///
/// @param prompt token ids, at least one; not copied, do not change it
/// @param kvParams `kv_transfer_params` of the request
/// @param ecParams `ec_transfer_params` of the request
/// @param cacheSalt the tenant's salt: requests with different salts never share blocks; empty for
///   none
/// @param items multimodal items in order of position
/// @param failurePolicy overrides the engine's policy for failed loads
/// @param externalId the id that the client or the router gave, equal on both engines of a P/D
///   pair; empty for none
/// @param promptIndex position of the prompt among those of one call, which have one external id
/// @param priority vLLM's: requests with a smaller number are admitted first and preempted last; 0
///   by default
@SuppressWarnings("ArrayRecordComponent") // owned by the request, never changed
public record GenerationRequest(
        int[] prompt,
        SamplingParams sampling,
        TransferParams kvParams,
        TransferParams ecParams,
        String cacheSalt,
        List<EncoderInput> items,
        Optional<LoadFailurePolicy> failurePolicy,
        String externalId,
        int promptIndex,
        int priority) {
    public GenerationRequest {
        Objects.requireNonNull(externalId, "externalId");
        Objects.requireNonNull(sampling, "sampling");
        Objects.requireNonNull(kvParams, "kvParams");
        Objects.requireNonNull(ecParams, "ecParams");
        Objects.requireNonNull(cacheSalt, "cacheSalt");
        items = List.copyOf(items);
        if (promptIndex < 0) {
            throw new IllegalArgumentException("promptIndex: " + promptIndex);
        }
        if (prompt.length == 0) {
            throw new IllegalArgumentException("an empty prompt");
        }
        int end = 0;
        for (var item : items) {
            if (item.position() < end || item.embeddings() > prompt.length - item.position()) {
                throw new IllegalArgumentException(
                        "item "
                                + item.hash()
                                + " at "
                                + item.position()
                                + " overlaps another or exceeds the prompt of "
                                + prompt.length);
            }
            end = item.position() + item.embeddings();
        }
    }

    /// A request without an id of the client's.
    public GenerationRequest(
            int[] prompt,
            SamplingParams sampling,
            TransferParams kvParams,
            TransferParams ecParams,
            String cacheSalt,
            List<EncoderInput> items,
            Optional<LoadFailurePolicy> failurePolicy) {
        this(prompt, sampling, kvParams, ecParams, cacheSalt, items, failurePolicy, "", 0, 0);
    }

    /// A plain text request.
    public static GenerationRequest of(int[] prompt, SamplingParams sampling) {
        return new GenerationRequest(
                prompt,
                sampling,
                TransferParams.EMPTY,
                TransferParams.EMPTY,
                "",
                List.of(),
                Optional.empty(),
                "",
                0,
                0);
    }

    public GenerationRequest withKvParams(TransferParams params) {
        return new GenerationRequest(
                prompt,
                sampling,
                params,
                ecParams,
                cacheSalt,
                items,
                failurePolicy,
                externalId,
                promptIndex,
                priority);
    }

    public GenerationRequest withEcParams(TransferParams params) {
        return new GenerationRequest(
                prompt,
                sampling,
                kvParams,
                params,
                cacheSalt,
                items,
                failurePolicy,
                externalId,
                promptIndex,
                priority);
    }

    public GenerationRequest withCacheSalt(String salt) {
        return new GenerationRequest(
                prompt,
                sampling,
                kvParams,
                ecParams,
                salt,
                items,
                failurePolicy,
                externalId,
                promptIndex,
                priority);
    }

    public GenerationRequest withItems(List<EncoderInput> others) {
        return new GenerationRequest(
                prompt,
                sampling,
                kvParams,
                ecParams,
                cacheSalt,
                others,
                failurePolicy,
                externalId,
                promptIndex,
                priority);
    }

    public GenerationRequest withFailurePolicy(LoadFailurePolicy policy) {
        return new GenerationRequest(
                prompt,
                sampling,
                kvParams,
                ecParams,
                cacheSalt,
                items,
                Optional.of(policy),
                externalId,
                promptIndex,
                priority);
    }

    public GenerationRequest withExternalId(String id) {
        return new GenerationRequest(
                prompt,
                sampling,
                kvParams,
                ecParams,
                cacheSalt,
                items,
                failurePolicy,
                id,
                promptIndex,
                priority);
    }

    public GenerationRequest withPromptIndex(int index) {
        return new GenerationRequest(
                prompt,
                sampling,
                kvParams,
                ecParams,
                cacheSalt,
                items,
                failurePolicy,
                externalId,
                index,
                priority);
    }

    public GenerationRequest withPriority(int number) {
        return new GenerationRequest(
                prompt,
                sampling,
                kvParams,
                ecParams,
                cacheSalt,
                items,
                failurePolicy,
                externalId,
                promptIndex,
                number);
    }
}
