// SPDX-License-Identifier: Apache-2.0
/// What every plugin that touches files says when one fails it.
@NullMarked
package io.kvferry.toolkit.files;

import org.jspecify.annotations.NullMarked;
