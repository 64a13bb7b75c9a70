// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

/// The tensors of small caches as vLLM extracts them, computed from the shapes of its caches.
final class VllmTensors {
    static final int LAYERS = 3;
    static final int BLOCKS = 12;
    static final int TOKENS = 4;
    static final int HEADS = 2;
    static final int DIM = 8;

    private VllmTensors() {}

    /// An element of K (0) or V (1), unlike any other.
    static short element(int layer, int kv, int block, int token, int head, int at) {
        return (short)
                (((((layer * 2 + kv) * 16 + block) * TOKENS + token) * HEADS + head) * DIM + at);
    }

    /// The tensor of a layer, of the first `blocks` blocks of a prompt, as vLLM extracts it.
    static short[] tensor(TensorForm.Shape shape, int layer, int blocks) {
        boolean flashAttn = shape == TensorForm.Shape.FLASH_ATTN;
        var out = new short[2 * blocks * TOKENS * HEADS * DIM];
        int i = 0;
        for (int a = 0; a < (flashAttn ? 2 : blocks); a++) {
            for (int b = 0; b < (flashAttn ? blocks : 2); b++) {
                for (int n = 0; n < TOKENS; n++) {
                    for (int h = 0; h < HEADS; h++) {
                        for (int d = 0; d < DIM; d++) {
                            out[i++] =
                                    flashAttn
                                            ? element(layer, a, b, n, h, d)
                                            : element(layer, b, a, n, h, d);
                        }
                    }
                }
            }
        }
        return out;
    }

    static long[] shape(TensorForm.Shape shape, int blocks) {
        return shape == TensorForm.Shape.FLASH_ATTN
                ? new long[] {2, blocks, TOKENS, HEADS, DIM}
                : new long[] {blocks, 2, TOKENS, HEADS, DIM};
    }
}
