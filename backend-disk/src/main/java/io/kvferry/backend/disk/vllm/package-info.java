// SPDX-License-Identifier: Apache-2.0
/// Import from and export to the folders of vLLM's ExampleConnector (`<root>/<digest of the
/// prompt>/<layer>.safetensors`). A layout for tests and debugging: whole prompts only, no
/// checksum, no quota, one group.
@NullMarked
package io.kvferry.backend.disk.vllm;

import org.jspecify.annotations.NullMarked;
