// SPDX-License-Identifier: Apache-2.0
/// The identity of a Hugging Face model folder, computed in the same way by all model runners.
@NullMarked
package io.kvferry.toolkit.model;

import org.jspecify.annotations.NullMarked;
