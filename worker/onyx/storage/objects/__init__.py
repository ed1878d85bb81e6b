"""Object stores that speak S3, by `s3://bucket/key`: the one package that imports botocore."""
