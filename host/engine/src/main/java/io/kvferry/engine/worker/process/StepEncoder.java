// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.worker.PlannedItem;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// Writes step plans for worker processes. Remembers what they know of each request, and sends only
/// what is new, so that a step costs bytes per new token and block, not per token and block of the
/// running requests.
final class StepEncoder {
    private final Map<String, Sent> sent = new HashMap<>();
    private final WireWriter out = new WireWriter(4096);

    /// What the workers know of a request.
    private static final class Sent {
        private int tokens;
        private int blocks;
    }

    WireWriter encode(StepPlan plan) {
        out.reset().i64(plan.number()).i64(Math.max(1, plan.limit().remainingNanos()));
        payload(plan.kvPlan());
        ids(plan.kvRevoked());
        payload(plan.ecPlan());
        ids(plan.ecRevoked());
        strings(plan.freedItems());
        out.i32(plan.placedItems().size());
        for (var place : plan.placedItems()) {
            out.string(place.hash()).i32(place.firstRow()).i32(place.rows());
        }
        out.i32(plan.encodes().size());
        for (var task : plan.encodes()) {
            var item = task.item();
            item.write(out);
            input(task.input()).bytes(task.input().content());
        }
        plan.kvChange().write(out);
        plan.ecChange().write(out);
        strings(plan.ended());
        plan.ended().forEach(sent::remove);
        out.i32(plan.items().size());
        for (int i = 0; i < plan.items().size(); i++) {
            item(plan.items().get(i));
        }
        return out;
    }

    private void item(PlannedItem item) {
        var known = sent.get(item.requestId());
        out.string(item.requestId()).bool(known == null);
        if (known == null) {
            known = new Sent();
            sent.put(item.requestId(), known);
            sampling(item.sampling());
            out.i32(item.promptTokens());
        }
        int end = item.start() + item.count();
        out.i32(item.start()).i32(item.count()).i32(item.changedFrom()).bool(item.sampled());
        out.i32(Math.max(0, end - known.tokens));
        for (; known.tokens < end; known.tokens++) {
            out.i32(item.tokenAt(known.tokens));
        }
        var blocks = item.blocks();
        int count = blocks.count(0);
        out.i32(blocks.groups()).i32(count - known.blocks);
        for (; known.blocks < count; known.blocks++) {
            for (int group = 0; group < blocks.groups(); group++) {
                out.i32(blocks.block(group, known.blocks));
            }
        }
        var inputs = item.inputs();
        out.i32(inputs.size());
        for (int i = 0; i < inputs.size(); i++) {
            input(inputs.get(i));
        }
    }

    private WireWriter input(EncoderInput input) {
        return out.string(input.hash())
                .string(input.modality())
                .i32(input.position())
                .i32(input.embeddings());
    }

    private void sampling(SamplingParams params) {
        out.i32(params.maxTokens()).f64(params.temperature()).f64(params.topP()).i64(params.seed());
        strings(params.stop());
        out.ints(params.stopTokens().stream().mapToInt(Integer::intValue).toArray())
                .bool(params.ignoreEos());
        var options = params.options();
        out.i32(options.topK())
                .f64(options.minP())
                .f64(options.presencePenalty())
                .f64(options.frequencyPenalty())
                .f64(options.repetitionPenalty())
                .i32(options.minTokens())
                .i32(options.logprobs())
                .i32(options.promptLogprobs())
                .i32(options.logitBias().size());
        options.logitBias().forEach((id, bias) -> out.i32(id).f64(bias));
    }

    private void payload(Payload payload) {
        out.i32(payload.version()).bytes(payload.bytes());
    }

    private void ids(List<TransferId> ids) {
        out.i32(ids.size());
        ids.forEach(id -> id.write(out));
    }

    private void strings(List<String> texts) {
        out.i32(texts.size());
        texts.forEach(out::string);
    }
}
