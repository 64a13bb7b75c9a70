// SPDX-License-Identifier: Apache-2.0
/// Folders of vLLM's ExampleConnector (`<root>/<digest of the prompt>/<layer>.safetensors`): read
/// and written in place (`layout: vllm-example`), or exchanged with the block store. A layout for
/// tests and debugging: whole prompts only, no checksum, no quota, one group.
@NullMarked
package io.kvferry.backend.disk.vllm;

import org.jspecify.annotations.NullMarked;
