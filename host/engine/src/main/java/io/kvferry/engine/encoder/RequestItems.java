// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.encoder;

import io.kvferry.engine.connector.PendingLookup;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.spi.kv.TransferParams;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.BooleanSupplier;

/// The multimodal items of one request, and how far each is.
public final class RequestItems {
    final String requestId;
    final List<EncoderInput> inputs;
    final TransferParams params;
    private final BooleanSupplier waits;
    private final State[] states;

    /// Whether an encode engine has room for all of them.
    boolean reserved;

    /// Whether the request has ended, and a connector holds what it refers to.
    boolean held;

    /// One item from the request's point of view.
    static final class State {
        /// Whether the request keeps the item's rows in the cache.
        boolean referenced;

        /// Whether it could not be loaded.
        boolean mustEncode;

        final PendingLookup pending = new PendingLookup();
    }

    /// @param waits whether the request is not running now, but may later
    public RequestItems(
            String requestId,
            List<EncoderInput> inputs,
            TransferParams params,
            BooleanSupplier waits) {
        this.requestId = requestId;
        this.inputs = inputs;
        this.params = params;
        this.waits = waits;
        this.states = new State[inputs.size()];
        Arrays.setAll(states, _ -> new State());
    }

    public boolean isEmpty() {
        return states.length == 0;
    }

    int count() {
        return states.length;
    }

    State state(int index) {
        return states[index];
    }

    String requestId() {
        return requestId;
    }

    boolean waits() {
        return waits.getAsBoolean();
    }

    /// Items whose placeholder tokens fall into positions `from` to `to`.
    public List<EncoderInput> within(int from, int to) {
        if (states.length == 0) {
            return List.of();
        }
        var within = new ArrayList<EncoderInput>();
        for (var input : inputs) {
            if (input.position() < to && input.position() + input.embeddings() > from) {
                within.add(input);
            }
        }
        return within;
    }

    /// Whether the request refers to this item at some position.
    boolean refersTo(String hash) {
        for (int i = 0; i < states.length; i++) {
            if (states[i].referenced && inputs.get(i).hash().equals(hash)) {
                return true;
            }
        }
        return false;
    }

    /// The request no longer refers to this item.
    void forget(String hash) {
        for (int i = 0; i < states.length; i++) {
            if (inputs.get(i).hash().equals(hash)) {
                states[i].referenced = false;
            }
        }
    }

    /// This item could not be loaded.
    void mustEncode(String hash) {
        for (int i = 0; i < states.length; i++) {
            if (inputs.get(i).hash().equals(hash)) {
                states[i].mustEncode = true;
            }
        }
    }

    /// For a log.
    String describe() {
        var text = new StringBuilder();
        for (int i = 0; i < states.length; i++) {
            var input = inputs.get(i);
            text.append(' ')
                    .append(input.hash())
                    .append('@')
                    .append(input.position())
                    .append('+')
                    .append(input.embeddings())
                    .append(states[i].referenced ? " referenced" : "")
                    .append(states[i].mustEncode ? " must-encode" : "")
                    .append(states[i].pending.isPending() ? " pending" : "");
        }
        return text.toString();
    }

    /// The encoder cache is empty: the request needs all of its items again.
    void reset() {
        reserved = false;
        for (var state : states) {
            state.referenced = false;
            state.pending.clear();
        }
    }
}
