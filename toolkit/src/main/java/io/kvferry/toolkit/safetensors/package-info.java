// SPDX-License-Identifier: Apache-2.0
/// Reading and writing the safetensors container: an 8-byte little-endian header length, a JSON
/// header, tensor bytes.
///
/// [SafetensorsFile] maps a file and hands out views of its tensors; [SafetensorsWriter] publishes
/// a file whole or not at all. The reader is strict, because files come from shared folders:
/// whatever the header claims is checked against the bytes that are there before any view is made.
@NullMarked
package io.kvferry.toolkit.safetensors;

import org.jspecify.annotations.NullMarked;
