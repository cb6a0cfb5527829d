// The least translation unit: what compile cost is measured against.
